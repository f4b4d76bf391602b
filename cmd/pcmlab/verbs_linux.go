package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pcmlab/pcmlab/capture"
	"github.com/pcmlab/pcmlab/internal/units"
)

// linuxVerbs are the verbs that need Linux on this very machine: packets, the software NIC and switch, the guard.
func linuxVerbs(e *env) []*cobra.Command {
	return []*cobra.Command{newCaptureCommand(e), newNICCommand(e), newFabricCommand(), newFabricCounters(e), newGuardCommand(), newProbeCommand(e)}
}

func newCaptureCommand(e *env) *cobra.Command {
	var iface, file, filter, output, fileSize, stamps string
	var snaplen, files int
	var length time.Duration
	cmd := &cobra.Command{
		Use:   "capture --iface IFACE -w FILE",
		Short: "Capture packets of an interface into a pcapng file until interrupted",
		Long: "Capture packets of an interface into a pcapng file with nanosecond timestamps. Says \"listening on IFACE\" when the ring\n" +
			"is live, drains it on interrupt, and ends with what was captured and dropped (also written into the file).",
		Example: "  pcmlab capture --iface eth0 -w roce.pcapng --snaplen 128 --filter roce --for 10s\n" +
			"  pcmlab capture --iface eth0 -w roce.pcapng --snaplen 128 --file-size 256MiB --files 8    # the newest 2 GiB",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := capture.CheckFilter(filter); err != nil {
				return usagef("--%v", err)
			}
			if err := checkOutput(output, "table", "json"); err != nil {
				return err
			}
			if stamps != "software" && stamps != "hardware" {
				return usagef("--timestamps %q: want software or hardware", stamps)
			}
			size := units.Size(0)
			if fileSize != "" {
				var err error
				if size, err = units.ParseSize(fileSize); err != nil {
					return usagef("--file-size: %w", err)
				}
			}
			if files != 0 && size == 0 {
				return usagef("--files %d: needs --file-size", files)
			}
			o := capture.TapOptions{Iface: iface, File: file, Snaplen: snaplen, Filter: filter, For: length, Ready: e.stderr, FileSize: int64(size), Files: files,
				Hardware: stamps == "hardware"}
			if err := o.Check(); err != nil {
				return usagef("%w", err)
			}
			stats, err := capture.RunTap(c.Context(), o)
			if err != nil {
				return err
			}
			if output == "json" {
				return writeJSON(e.stdout, stats)
			}
			ring := ""
			if size > 0 {
				ring = fmt.Sprintf(", %d in files that were replaced", stats.Overwritten)
			}
			_, err = fmt.Fprintf(e.stdout, "%d packets, %d bytes captured, %d dropped%s\n", stats.Packets, stats.Bytes, stats.Dropped, ring)
			return err
		},
	}
	cmd.Flags().StringVar(&iface, "iface", "", "interface")
	cmd.Flags().StringVarP(&file, "write", "w", "", "file to write (pcapng)")
	cmd.Flags().IntVar(&snaplen, "snaplen", 0, "bytes kept of each packet (0: all)")
	cmd.Flags().StringVar(&filter, "filter", "", "packets that are kept: roce, pfc, 'udp port N', joined by or (all)")
	cmd.Flags().StringVar(&fileSize, "file-size", "", "begin a new file before one becomes longer, such as 256MiB: NAME_00001.pcapng and so on (one file)")
	cmd.Flags().IntVar(&files, "files", 0, "keep so many of them, the newest; needs --file-size (0: all)")
	cmd.Flags().StringVar(&stamps, "timestamps", "software", "hardware: the NIC's own clock, where it stamps every packet that it receives (ethtool -T)")
	cmd.Flags().DurationVar(&length, "for", 0, "stop after this time (0: on interrupt)")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "table or json")
	cmd.MarkFlagRequired("iface")
	cmd.MarkFlagRequired("write")
	return cmd
}

func newGuardCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "guard --run ID --deadline D -- COMMAND",
		Short: "Own a command on a host for a run (pcmlab starts this itself)",
		Long: "The guard owns a command and everything that it starts. It relays output over its standard streams, and when its\n" +
			"channel is lost, the deadline passes or it is told to, nothing of what it started is left. It speaks frames, not text:\n" +
			"pcmlab starts it on hosts and talks to it; it is of no use to type.",
		DisableFlagParsing: true,
		RunE:               func(c *cobra.Command, _ []string) error { return c.Help() },
	}
}
