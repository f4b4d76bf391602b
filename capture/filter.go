package capture

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/bpf"

	"github.com/pcmlab/pcmlab/capture/roce"
)

// filter is a parsed TapOptions.Filter.
type filter struct {
	ports []uint32 // UDP destination ports
	pfc   bool     // MAC control frames
}

// CheckFilter says what is wrong with a TapOptions.Filter.
func CheckFilter(text string) error {
	_, _, err := parseFilter(text)
	return err
}

// parseFilter understands terms joined by "or": roce, pfc, udp port N. all is true for the empty text.
func parseFilter(text string) (f filter, all bool, err error) {
	if strings.TrimSpace(text) == "" || strings.TrimSpace(text) == "all" {
		return filter{}, true, nil
	}
	for _, term := range strings.Split(strings.ReplaceAll(text, ",", " or "), " or ") {
		words := strings.Fields(term)
		switch {
		case len(words) == 1 && words[0] == "roce":
			f.ports = append(f.ports, roce.Port)
		case len(words) == 1 && words[0] == "pfc":
			f.pfc = true
		case len(words) == 3 && words[0] == "udp" && words[1] == "port":
			n, err := strconv.ParseUint(words[2], 10, 16)
			if err != nil || n == 0 {
				return filter{}, false, fmt.Errorf("filter %q: port %q: want 1 to 65535", text, words[2])
			}
			f.ports = append(f.ports, uint32(n))
		default:
			return filter{}, false, fmt.Errorf(`filter %q: term %q: want "roce", "pfc" or "udp port N", joined by " or "`, text, strings.TrimSpace(term))
		}
	}
	return f, false, nil
}

// assembler writes classic BPF with names for jump targets, all of which lie ahead.
type assembler struct {
	ins    []bpf.Instruction
	jumps  map[int][2]string // instruction: labels for true and false; empty means the next instruction
	labels map[string]int
}

func (a *assembler) emit(i bpf.Instruction) { a.ins = append(a.ins, i) }
func (a *assembler) label(name string)      { a.labels[name] = len(a.ins) }

func (a *assembler) jump(cond bpf.JumpTest, v uint32, yes, no string) {
	a.jumps[len(a.ins)] = [2]string{yes, no}
	a.emit(bpf.JumpIf{Cond: cond, Val: v})
}

func (a *assembler) assemble() ([]bpf.RawInstruction, error) {
	for at, to := range a.jumps {
		var skip [2]uint8
		for i, name := range to {
			if name == "" {
				continue
			}
			d := a.labels[name] - at - 1
			if d < 0 || d > 255 {
				return nil, fmt.Errorf("jump from %d to %s (%d): out of reach, the filter has too many terms", at, name, a.labels[name])
			}
			skip[i] = uint8(d)
		}
		j := a.ins[at].(bpf.JumpIf)
		j.SkipTrue, j.SkipFalse = skip[0], skip[1]
		a.ins[at] = j
	}
	return bpf.Assemble(a.ins)
}

// compileFilter builds the program that the kernel runs on each packet; it returns how many bytes to keep, 0 for none. The
// kernel has moved an outer VLAN tag out of the packet by then, but not the inner ones, nor on every path the outer one, so that
// up to two tags are stepped over.
func compileFilter(text string, link roce.LinkType, snaplen int) ([]bpf.RawInstruction, error) {
	f, all, err := parseFilter(text)
	if err != nil {
		return nil, err
	}
	if all {
		return bpf.Assemble([]bpf.Instruction{bpf.RetConstant{Val: uint32(snaplen)}})
	}
	a := &assembler{jumps: map[int][2]string{}, labels: map[string]int{}}
	if link == roce.LinkEthernet {
		for level := range 3 {
			f.etherLevel(a, level)
		}
	} else {
		a.emit(bpf.LoadAbsolute{Off: 0, Size: 1})
		a.emit(bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xf0})
		a.jump(bpf.JumpEqual, 0x40, "v4_raw", "")
		a.jump(bpf.JumpEqual, 0x60, "v6_raw", "drop")
		f.ip(a, "raw", 0)
	}
	a.label("drop")
	a.emit(bpf.RetConstant{Val: 0})
	a.label("accept")
	a.emit(bpf.RetConstant{Val: uint32(snaplen)})
	return a.assemble()
}

// etherLevel looks at the EtherType after level VLAN tags.
func (f filter) etherLevel(a *assembler, level int) {
	base := uint32(12 + 4*level)
	name := strconv.Itoa(level)
	next := "level_" + strconv.Itoa(level+1)
	if level == 2 {
		next = "drop"
	}
	a.label("level_" + name)
	a.emit(bpf.LoadAbsolute{Off: base, Size: 2})
	if f.pfc {
		a.jump(bpf.JumpEqual, 0x8808, "accept", "")
	}
	a.jump(bpf.JumpEqual, 0x8100, next, "")
	a.jump(bpf.JumpEqual, 0x88a8, next, "")
	a.jump(bpf.JumpEqual, 0x0800, "v4_"+name, "")
	a.jump(bpf.JumpEqual, 0x86dd, "v6_"+name, "drop")
	f.ip(a, name, base+2)
}

// ip accepts UDP to one of the ports in a packet that starts at off, fragments after the first excepted.
func (f filter) ip(a *assembler, name string, off uint32) {
	a.label("v4_" + name)
	a.emit(bpf.LoadAbsolute{Off: off + 9, Size: 1})
	a.jump(bpf.JumpEqual, 17, "", "drop")
	a.emit(bpf.LoadAbsolute{Off: off + 6, Size: 2})
	a.jump(bpf.JumpBitsSet, 0x1fff, "drop", "")
	a.emit(bpf.LoadMemShift{Off: off}) // X = header length
	a.emit(bpf.LoadIndirect{Off: off + 2, Size: 2})
	f.portTest(a)
	a.label("v6_" + name)
	a.emit(bpf.LoadAbsolute{Off: off + 6, Size: 1})
	a.jump(bpf.JumpEqual, 17, "", "drop")
	a.emit(bpf.LoadAbsolute{Off: off + 42, Size: 2})
	f.portTest(a)
}

func (f filter) portTest(a *assembler) {
	for _, p := range f.ports {
		a.jump(bpf.JumpEqual, p, "accept", "")
	}
	a.emit(bpf.RetConstant{Val: 0})
}
