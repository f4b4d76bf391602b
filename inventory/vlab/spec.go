package vlab

import (
	"encoding/json"
	"os"
	"time"
)

// keeperSpec is the first message to the keeper: what to build. It is also the permission to start, given only when
// the keeper is recorded in the state file.
type keeperSpec struct {
	ID           string        `json:"id"`
	Dir          string        `json:"dir"`
	DataDir      string        `json:"data_dir"`
	Binary       string        `json:"binary"`
	IO           IO            `json:"io"`
	Rootless     bool          `json:"rootless"`
	Ephemeral    bool          `json:"ephemeral"`
	NoSelfTest   bool          `json:"no_self_test"`
	ProbeTimeout time.Duration `json:"probe_timeout_ns"`
	Specs        string        `json:"specs"`   // file with []hostSpec: it may be larger than a message
	Fabrics      []fabricPlan  `json:"fabrics"` //
	Trunks       []trunkPlan   `json:"trunks"`  //
	Hosts        int           `json:"hosts"`   // listeners handed over, one per host, from descriptor 4 on
}

// hostSpec is what a host's init process is told.
type hostSpec struct {
	hostPlan
	LabID   string   `json:"lab_id"`
	IO      IO       `json:"io"`
	BootID  string   `json:"boot_id"`
	Data    string   `json:"data"`   // the host's folder: home, tmp, var-tmp, log
	SSH     string   `json:"ssh"`    // folder to show as ~/.ssh, the same for all hosts
	EtcHost string   `json:"etc"`    // file to show as /etc/hosts
	Hide    []string `json:"hide"`   // folders of labs
	Binary  string   `json:"binary"` // shown as /run/pcmlab/bin/pcmlab
	HostKey string   `json:"host_key"`
	UserKey string   `json:"user_key"` // public

	NoNIC        bool `json:"no_nic,omitempty"`
	KeepOffloads bool `json:"keep_offloads,omitempty"`
}

func readSpecs(path string) ([]hostSpec, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []hostSpec
	return out, json.Unmarshal(b, &out)
}
