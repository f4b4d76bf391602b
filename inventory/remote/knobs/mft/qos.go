package mft

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// QoSTool is the tool that reads and sets quality of service of a NIC's network interface.
const QoSTool = "mlnx_qos"

// QoS is what QoSTool shows, a text for each setting in the form in which it is set: "0,0,0,1,0,0,0,0". What an interface does not have is absent.
// "dscp2prio" are pairs, by DSCP: "0:0,26:3".
type QoS map[string]string

// qosKeys are the settings that can be put back, in the order in which they are set: the map comes behind trust, which may replace it.
var qosKeys = []string{"pfc", "prio_tc", "cable_len", "prio2buffer", "buffer_size", "trust", "dscp2prio"}

// ShowQoSArgs is the command that shows all of an interface.
func ShowQoSArgs(iface string) []string { return []string{QoSTool, "-i", iface} }

// CheckQoS says what is wrong with settings of an interface.
func CheckQoS(set []Assign) error {
	if len(set) == 0 {
		return fmt.Errorf("nothing to set: known are %s", strings.Join(qosKeys, ", "))
	}
	for i, a := range set {
		if !slices.Contains(qosKeys, a.Name) {
			return fmt.Errorf("%s has no %q: known are %s", QoSTool, a.Name, strings.Join(qosKeys, ", "))
		}
		if slices.ContainsFunc(set[:i], func(b Assign) bool { return b.Name == a.Name }) {
			return fmt.Errorf("%s is there twice", a.Name)
		}
		if err := checkQoS(a.Name, a.Value); err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
	}
	return nil
}

func checkQoS(key, value string) error {
	most := map[string]int{"pfc": 1, "prio_tc": 7, "prio2buffer": 7, "buffer_size": 1 << 30}
	switch key {
	case "trust":
		if value != "pcp" && value != "dscp" {
			return fmt.Errorf("%q is neither pcp nor dscp", value)
		}
		return nil
	case "cable_len":
		if n, err := strconv.Atoi(value); err != nil || n < 0 || n > 0xffff {
			return fmt.Errorf("%q is no length in metres from 0 to 65535", value)
		}
		return nil
	case "dscp2prio":
		_, err := dscpPairs(value)
		return err
	}
	list := strings.Split(value, ",")
	if len(list) != 8 {
		return fmt.Errorf("%q has %d values, the priorities are 8: 0,0,0,1,0,0,0,0", value, len(list))
	}
	for _, v := range list {
		if n, err := strconv.Atoi(v); err != nil || n < 0 || n > most[key] {
			return fmt.Errorf("%q is no number from 0 to %d", v, most[key])
		}
	}
	return nil
}

// dscpPairs reads 26:3,48:6.
func dscpPairs(s string) (map[int]int, error) {
	out := map[int]int{}
	for pair := range strings.SplitSeq(s, ",") {
		d, p, _ := strings.Cut(pair, ":")
		dscp, err1 := strconv.Atoi(d)
		prio, err2 := strconv.Atoi(p)
		if err1 != nil || err2 != nil || dscp < 0 || dscp > 63 || prio < 0 || prio > 7 {
			return nil, fmt.Errorf("%q is no DSCP with its priority, such as 26:3", pair)
		}
		out[dscp] = prio
	}
	return out, nil
}

func joinPairs(m map[int]int) string {
	var pairs []string
	for _, d := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, fmt.Sprintf("%d:%d", d, m[d]))
	}
	return strings.Join(pairs, ",")
}

// SetQoSArgs are the commands that make the settings, in their order: trust and the map cannot be given together.
func SetQoSArgs(iface string, set []Assign) (commands [][]string) {
	for _, key := range qosKeys {
		i := slices.IndexFunc(set, func(a Assign) bool { return a.Name == key })
		if i < 0 || set[i].Value == "" {
			continue
		}
		c := []string{QoSTool, "-i", iface}
		if key != "dscp2prio" {
			commands = append(commands, append(c, "--"+key, set[i].Value))
			continue
		}
		for pair := range strings.SplitSeq(set[i].Value, ",") {
			d, p, _ := strings.Cut(pair, ":")
			c = append(c, "--dscp2prio", "set,"+d+","+p)
		}
		commands = append(commands, c)
	}
	return commands
}

// ParseQoS reads what ShowQoSArgs prints.
func ParseQoS(out string) (QoS, error) {
	q := QoS{}
	dscp := map[int]int{}
	tcs := [8]string{}
	tc, known := "", 0
	eight := func(f []string) string {
		if len(f) < 9 {
			return ""
		}
		return strings.Join(f[1:9], ",")
	}
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "Priority trust state:"):
			q["trust"] = strings.TrimSpace(strings.TrimPrefix(line, "Priority trust state:"))
		case strings.HasPrefix(line, "prio:"):
			p, list, _ := strings.Cut(strings.TrimPrefix(line, "prio:"), " dscp:")
			prio, err := strconv.Atoi(strings.TrimSpace(p))
			for d := range strings.SplitSeq(list, ",") {
				if n, derr := strconv.Atoi(strings.TrimSpace(d)); err == nil && derr == nil {
					dscp[n] = prio
				}
			}
		case strings.HasPrefix(line, "Receive buffer size (bytes):"):
			list, _, _ := strings.Cut(strings.TrimPrefix(line, "Receive buffer size (bytes):"), "max_buffer_size")
			q["buffer_size"] = strings.Trim(strings.TrimSpace(list), ",")
		case strings.HasPrefix(line, "Cable len:"):
			q["cable_len"] = strings.TrimSpace(strings.TrimPrefix(line, "Cable len:"))
		case len(f) == 9 && f[0] == "enabled":
			q["pfc"] = eight(f)
		case len(f) == 9 && f[0] == "buffer":
			q["prio2buffer"] = eight(f)
		case strings.HasPrefix(line, "tc:") && len(f) > 1:
			tc = strings.Trim(f[1], ",")
		case strings.HasPrefix(line, "priority:") && len(f) == 2 && tc != "":
			if n, err := strconv.Atoi(f[1]); err == nil && n >= 0 && n < 8 {
				if tcs[n] == "" {
					known++
				}
				tcs[n] = tc
			}
		}
	}
	if known == 8 {
		q["prio_tc"] = strings.Join(tcs[:], ",")
	}
	if len(dscp) > 0 {
		q["dscp2prio"] = joinPairs(dscp)
	}
	for key, value := range q {
		if err := checkQoS(key, value); err != nil && (key != "trust" || value != "none") {
			return nil, fmt.Errorf("%s printed something else than settings: %s: %w (%q)", QoSTool, key, err, tail(out))
		}
	}
	if q["pfc"] == "" {
		return nil, fmt.Errorf("%s printed no PFC configuration (%q)", QoSTool, tail(out))
	}
	return q, nil
}

// Of are the settings that were named as they are now, in a form that SetQoSArgs takes, so that they can be put back. With trust goes the whole
// map, which a change of trust replaces, and which there is none of while ports are trusted (pcp); of a map alone only the DSCPs that were named.
func (q QoS) Of(set []Assign) (now []Assign, err error) {
	var missing []string
	trust := slices.ContainsFunc(set, func(a Assign) bool { return a.Name == "trust" })
	for _, a := range set {
		switch v, ok := q[a.Name]; {
		case a.Name == "dscp2prio" && trust: // below
		case a.Name == "dscp2prio":
			pairs, err := dscpPairs(a.Value)
			if err != nil {
				return nil, err
			}
			all := q.dscp()
			for d := range pairs {
				p, there := all[d]
				if !there {
					missing = append(missing, fmt.Sprintf("the priority of DSCP %d (trust is %s: set trust: dscp with it)", d, q["trust"]))
				}
				pairs[d] = p
			}
			now = append(now, Assign{a.Name, joinPairs(pairs)})
		case !ok:
			missing = append(missing, a.Name)
		default:
			now = append(now, Assign{a.Name, v})
		}
	}
	if trust {
		now = append(now, Assign{"dscp2prio", q["dscp2prio"]})
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s does not show %s, so that nobody could put it back", QoSTool, strings.Join(missing, ", "))
	}
	return now, nil
}

func (q QoS) dscp() map[int]int {
	all, err := dscpPairs(q["dscp2prio"])
	if err != nil {
		return map[int]int{}
	}
	return all
}

// Unlike are the settings that are not what was asked for, each with what it is.
func (q QoS) Unlike(set []Assign) (wrong []string) {
	for _, a := range set {
		is := q[a.Name]
		if a.Name == "dscp2prio" {
			pairs, _ := dscpPairs(a.Value)
			have, all := map[int]int{}, q.dscp()
			for d := range pairs {
				if p, ok := all[d]; ok {
					have[d] = p
				}
			}
			if is = joinPairs(have); maps.Equal(have, pairs) {
				continue
			}
		} else if is == a.Value {
			continue
		}
		wrong = append(wrong, fmt.Sprintf("%s: %q was set, %q is read back", a.Name, a.Value, is))
	}
	return wrong
}
