package endpoint

// Kept is how much the endpoint keeps of its peers, for the tests of its bounds.
func (e *Endpoint) Kept() (locals, peers, incoming int) {
	return len(e.locals), len(e.peers), len(e.incoming)
}

// MaxLocals is the bound of the first.
const MaxLocals = maxLocals
