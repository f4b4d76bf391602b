package experiments

import "errors"

// What went wrong decides the exit code; each sentinel is one class of the command line's table.
var (
	ErrInput = errors.New("input is wrong")       // playbook, inventory, arguments
	ErrBusy  = errors.New("lab is busy")          // ports or hosts held by another run
	ErrData  = errors.New("data is not complete") // cut or blind captures, a run too noisy to judge
)
