package experiments

import (
	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/internal/spec"
)

// Capture is a tap that is captured during the run.
type Capture struct {
	Tap      string
	Judge    bool
	Snaplen  int
	Filter   string          // "": RoCE, and RDCC where the run is under credit control
	FileSize int64           // 0: one file
	Files    int             // 0: all stay
	Program  capture.Program // "": the first that can
	Hardware bool            // stamped by the NIC
	Optional bool
}

// Where captures are analysed.
const (
	AnalyzeAuto  = "auto"
	AnalyzeHere  = "here"
	AnalyzeThere = "there"
)

// capture is how a tap is captured, or nil.
func (p *Playbook) capture(tap string) *Capture {
	for i := range p.Captures {
		if p.Captures[i].Tap == tap {
			return &p.Captures[i]
		}
	}
	return nil
}

func (p *Playbook) buildCaptures(f *playbookFile) {
	judges := 0
	taps := map[string]bool{}
	for i, c := range f.Captures {
		if taps[c.Tap] {
			p.doc.Errorf(spec.P("captures", i, "tap"), "leave it out", "tap %q is captured already", c.Tap)
		}
		taps[c.Tap] = true
		if c.Judge {
			judges++
			if judges > 1 {
				p.doc.Errorf(spec.P("captures", i, "judge"), "one tap judges: the one behind the bottleneck", "a second tap that judges")
			}
			if c.Optional {
				p.doc.Errorf(spec.P("captures", i, "optional"), "leave it out", "the tap that judges cannot be optional")
			}
		}
		if err := capture.CheckFilter(c.Filter); err != nil {
			p.doc.Errorf(spec.P("captures", i, "filter"), "", "%v", err)
		}
		if c.Files > 0 && c.FileSize == 0 {
			p.doc.Errorf(spec.P("captures", i, "files"), "add file_size", "%d files of no size", c.Files)
		}
		program := capture.Program(c.Program)
		if program == "auto" {
			program = ""
		}
		hardware := c.Timestamps == "hardware"
		if hardware && program != "" && program != capture.Own {
			p.doc.Errorf(spec.P("captures", i, "timestamps"), "leave out program, or write program: pcmlab", "hardware timestamps are taken by pcmlab alone, not by %s", program)
		}
		p.Captures = append(p.Captures, Capture{c.Tap, c.Judge, c.Snaplen, c.Filter, int64(c.FileSize), c.Files, program, hardware, c.Optional})
	}
	if judges == 0 && len(f.Captures) == 1 {
		p.Captures[0].Judge = true
	} else if judges == 0 && len(f.Captures) > 1 {
		p.doc.Errorf(spec.P("captures"), "write judge: true at the tap behind the bottleneck", "none of %d taps judges", len(f.Captures))
	}
}
