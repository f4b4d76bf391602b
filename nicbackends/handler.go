package nicbackends

import "github.com/pcmlab/pcmlab/inventory"

// Handled is a Backend whose NICs run PCM handlers.
type Handled interface {
	// Handler resolves the NIC's handler for the lab; mistakes of its package come here, before anything is touched.
	Handler(lab *inventory.Lab, nic *inventory.NIC) (Handler, error)
}

// Handler is a handler as it will be deployed.
type Handler struct {
	Name      string            `json:"name"`
	Hash      string            `json:"hash"` // of its sources, constants and the shell around it
	Constants map[string]string `json:"constants"`
}
