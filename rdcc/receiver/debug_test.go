package receiver

import "fmt"

func (w *world) dump() string {
	s := ""
	for id, o := range w.oracle.assocs {
		i, ok := w.r.byID[id]
		if !ok {
			s += fmt.Sprintf("%x gone\n", id)
			continue
		}
		a := &w.r.assocs[i]
		s += fmt.Sprintf("%x %v pool %v: limit %d held %d received %d | oracle limit %d received %d\n", id, a.addr, a.pool, a.poolCredit.limit, a.poolCredit.held, a.poolReceived, o.credit.limit(w.now, w.r.cfg.Fabric.DMax), o.received)
		for mid, m := range o.messages {
			at := w.r.index.get(key{mid, id, tagMessage})
			if at < 0 {
				s += fmt.Sprintf("   %d: oracle %+v, not here\n", mid, m)
				continue
			}
			rm := &w.r.messages[at]
			s += fmt.Sprintf("   %d: oracle ann %d rec %d lim %d asked %v cancelled %v| ann %d rec %d unsched %d held %d limit %d release %v bad %v presumed %v cancelled %v\n", mid, m.announced, m.received, m.credit.limit(w.now, w.r.cfg.Fabric.DMax), m.asked, m.cancelled, rm.announced, rm.received, rm.unscheduled, rm.credit.held, rm.credit.limit, rm.release, rm.bad, rm.presumed, rm.cancelled)
		}
	}
	return s
}
