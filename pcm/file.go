package pcm

import "github.com/pcmlab/pcmlab/internal/spec"

// packageFile is the shape of NAME.yaml.
type packageFile struct {
	Algorithm algorithmFile  `yaml:"algorithm,required" doc:"what the package is"`
	Sources   []string       `yaml:"sources" doc:"further C files that are compiled into the same object"`
	Constants []constantFile `yaml:"constants" doc:"values that are folded into the code"`
	Signals   []signalFile   `yaml:"signals,required" minitems:"1" maxitems:"64" doc:"what the handler reads of the datapath"`
	Controls  []controlFile  `yaml:"controls" doc:"what it sets"`
	Variables []variableFile `yaml:"variables" doc:"what it keeps of each flow"`
}

type algorithmFile struct {
	Name        string `yaml:"name,required" pattern:"[A-Za-z_][A-Za-z0-9_]*" example:"swift" doc:"name, which is that of the files, too"`
	Description string `yaml:"description" doc:"one line for people"`
	Kind        string `yaml:"kind" enum:"sender_cc,receiver_cc,lb" doc:"what it decides; from its controls when absent"`
}

type constantFile struct {
	Name        string      `yaml:"name,required" pattern:"[A-Za-z_][A-Za-z0-9_]*" doc:"name, an upper-case macro in C"`
	Type        string      `yaml:"type,required" enum:"uint,int,float,frac" doc:"type in C"`
	Value       spec.Scalar `yaml:"value,required" example:"FABRIC_LINK_MSS" doc:"number, name, or expression over the fabric file and other constants"`
	Description string      `yaml:"description" doc:"for people"`
}

type signalFile struct {
	Name        string       `yaml:"name,required" pattern:"[A-Za-z_][A-Za-z0-9_]*" doc:"name, a bit mask in C"`
	Type        string       `yaml:"type,required" example:"PCM_SIG_ACK" doc:"source in the datapath"`
	Accum       string       `yaml:"accumulation,required" enum:"PCM_SIG_ACCUM_SUM,PCM_SIG_ACCUM_MIN,PCM_SIG_ACCUM_MAX,PCM_SIG_ACCUM_LAST" doc:"how several values become one"`
	TriggerType string       `yaml:"trigger_type" enum:"PCM_SIG_TRIGGER_RAW,PCM_SIG_TRIGGER_DELTA,PCM_SIG_TRIGGER_MAGNITUDE" doc:"what is compared; RAW when only a threshold is given"`
	TriggerOp   string       `yaml:"trigger_op" doc:"comparison; >= when absent"`
	Threshold   *spec.Scalar `yaml:"trigger_threshold" doc:"value that is compared with: the handler runs when it holds"`
	Reset       spec.Scalar  `yaml:"reset_upon_trigger" default:"true" doc:"set to the initial value when the handler runs"`
	Initial     *spec.Scalar `yaml:"initial_value" doc:"value of a new flow; 0, but all ones for MIN"`
	Description string       `yaml:"description" doc:"for people"`
}

type controlFile struct {
	Name        string       `yaml:"name,required" pattern:"[A-Za-z_][A-Za-z0-9_]*" doc:"name"`
	Type        string       `yaml:"type,required" example:"PCM_CTRL_CWND" doc:"what it sets"`
	Initial     *spec.Scalar `yaml:"initial_value" doc:"value of a new flow"`
	Description string       `yaml:"description" doc:"for people"`
}

type variableFile struct {
	Name        string       `yaml:"name,required" pattern:"[A-Za-z_][A-Za-z0-9_]*" doc:"name"`
	Type        string       `yaml:"type,required" enum:"uint,int,float,frac" doc:"type in C"`
	Initial     *spec.Scalar `yaml:"initial_value" doc:"value of a new flow; 0"`
	Len         *spec.Scalar `yaml:"arr_len" doc:"number of elements: an array"`
	Description string       `yaml:"description" doc:"for people"`
}

// SchemaPackage is the JSON Schema of NAME.yaml.
func SchemaPackage() []byte { return spec.SchemaJSON("pcmlab handler package", packageFile{}) }
