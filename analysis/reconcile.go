package analysis

import "fmt"

// reconcile holds a file against what the program that captured it said: packets that it took and that are not in the
// file make the capture incomplete, and the returned text says so. Drops that the file itself does not know are taken
// from there.
func reconcile(f *File, in Input) string {
	said := in.Said
	f.More = in.More
	if f.Drops == nil && said.Dropped != nil {
		drops := *said.Dropped
		f.Drops = &drops
	}
	switch {
	case said.Captured == nil || *said.Captured == f.Packets:
		return ""
	case *said.Captured > f.Packets && said.Ring:
		return fmt.Sprintf("its ring of files replaced %d of %d packets by newer ones: what comes before is not there (more or larger files)", *said.Captured-f.Packets, *said.Captured)
	case *said.Captured > f.Packets:
		return fmt.Sprintf("its capturing program says %d packets captured, the file holds %d: the last %d were never written "+
			"(end tcpdump with SIGINT and wait for it, or let it write at once: tcpdump -U --immediate-mode)", *said.Captured, f.Packets, *said.Captured-f.Packets)
	}
	return fmt.Sprintf("its capturing program says %d packets captured, but the file holds %d: they are not of the same capture", *said.Captured, f.Packets)
}
