package perftest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path"
	"strconv"
	"syscall"
)

// toolOutReads is what ib_read_bw offers; the software NIC keeps as many READs outstanding.
const toolOutReads = 16

// ToolInterrupted is Tool's result when its context ended. The real tool has no signal handler: it dies of the signal
// and prints nothing more. A process that is nothing but the tool gets the same by giving Tool a context that signals
// do not end.
const ToolInterrupted = 130

// Tool is ib_write_bw for hosts whose NIC is not in the kernel: the real tool's flags as far as the driver uses them
// (every other one is refused by name), its text, and its TCP exchange of queue pair data. argv[0] tells which tool is
// meant: ib_write_bw, or ib_read_bw where the queue pairs can READ. It returns the exit status. Standard input is not
// read, as the real tool does not.
//
// Differences from the real tool, on purpose: stdout is written as it comes and not in blocks; there is no pause of one
// second after the connection; with -D, messages still in flight at the end are waited for.
func Tool(ctx context.Context, argv []string, v Verbs, _ io.Reader, stdout, stderr io.Writer) int {
	name := WriteBW
	if len(argv) > 0 {
		name = path.Base(argv[0])
		argv = argv[1:]
	}
	t := &tool{verbs: v, stdout: stdout, stderr: stderr}
	if name != WriteBW && name != ReadBW {
		t.say(fmt.Sprintf("%s: not supported by the software NIC (it has %s and %s)", name, WriteBW, ReadBW))
		return 1
	}
	o, err := parseTool(name, argv)
	t.toolOptions = o
	var usage *usageError
	switch {
	case errors.Is(err, errHelp):
		o.usage(stdout)
		return 1 // as the real tool
	case errors.Is(err, errVersion):
		fmt.Fprintf(stdout, "Version: %s\n", oobVersion)
		return 1
	case errors.As(err, &usage):
		t.say(usage.lines...)
		return 1
	}
	if err := t.run(ctx); err != nil {
		if ctx.Err() != nil {
			return ToolInterrupted
		}
		t.explain(err)
		return 1
	}
	return 0
}

type tool struct {
	toolOptions
	verbs          Verbs
	stdout, stderr io.Writer
}

func (t *tool) say(lines ...string) {
	for _, l := range lines {
		fmt.Fprintln(t.stderr, l)
	}
}

// explain says an error in the real tool's words.
func (t *tool) explain(err error) {
	var broken *exchangeError
	var said *usageError
	switch {
	case errors.As(err, &broken):
		t.say(broken.said...)
		t.say(" Failed to exchange data between server and clients")
	case errors.As(err, &said):
		t.say(said.lines...)
	case errors.Is(err, errOldVersion):
		t.say("Current implementation is not compatible with versions older than 5.70")
	default:
		t.say(" " + err.Error())
	}
}

func saying(lines ...string) error { return &usageError{lines} }

func (t *tool) run(ctx context.Context) error {
	dev, err := t.openDevice()
	if err != nil {
		return err
	}
	defer dev.Close()
	info := dev.Info()
	if !info.Active {
		return saying(" Port number 1 state is Down", " Couldn't set the link layer", " Couldn't get context for the device")
	}
	if t.server == "" && t.output == "" {
		printWaiting(t.stdout)
	}
	conn, err := t.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	x := exchanger{rw: conn, client: t.server != ""}
	mtu, err := x.preamble(t.ownMTU(info))
	if err != nil {
		return err
	}
	gidIndex, gid := t.gid(info)
	qps, mine, err := t.makeQPs(dev, mtu, gidIndex, gid)
	for _, q := range qps {
		defer q.Close()
	}
	if err != nil {
		return err
	}
	if t.output == "" {
		t.printBanner(t.stdout, info, mtu, gidIndex)
	}
	theirs, err := t.meet(x, mine)
	if err != nil {
		return err
	}
	if netip.AddrFrom16(mine[0].GID).Is4In6() != netip.AddrFrom16(theirs[0].GID).Is4In6() {
		return saying("", " Found Incompatibility issue with GID types.", " Please Try to use a different IP version.", "")
	}
	if len(qps) == 0 {
		return saying(" Couldn't create IB resources", fmt.Sprintf(" GID index %d: no such entry on %s", gidIndex, info.Name))
	}
	for i, q := range qps {
		if err := q.Connect(theirs[i].QPInfo); err != nil {
			t.say(fmt.Sprintf(" Failed to modify QP %d to RTR: %v", mine[i].QPN, err))
			return saying(" Unable to Connect the HCA's through the link")
		}
	}
	if err := t.confirm(x, mine); err != nil {
		return err
	}
	if t.server != "" {
		return t.runClient(ctx, x, qps, mine[0])
	}
	return t.runServer(x, mine[0])
}

func (t *tool) openDevice() (Device, error) {
	notFound := " Unable to find the Infiniband/RoCE device"
	if t.device == "" {
		names, err := t.verbs.Devices()
		if err != nil {
			return nil, saying(" "+err.Error(), notFound)
		}
		if len(names) == 0 {
			return nil, saying(" Did not detect devices ", " If device exists, check if driver is up", notFound)
		}
		t.device = names[0]
	}
	dev, err := t.verbs.Open(t.device)
	var none *NoDeviceError
	switch {
	case errors.As(err, &none):
		return nil, saying(fmt.Sprintf("IB device %s not found", t.device), notFound)
	case err != nil:
		return nil, saying(fmt.Sprintf(" %s: %v", t.device, err), " Couldn't get context for the device")
	}
	return dev, nil
}

// connect is the TCP connection: the client's to the server, or the first that comes to the server, which then stops
// listening so that a second client is refused.
func (t *tool) connect(ctx context.Context) (net.Conn, error) {
	glued := "Unable to open file descriptor for socket connection Unable to init the socket connection"
	address := net.JoinHostPort(t.server, strconv.Itoa(t.port))
	if t.server != "" {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		var dns *net.DNSError
		if errors.As(err, &dns) {
			reason := "Name or service not known"
			if dns.IsTemporary || dns.IsTimeout {
				reason = "Temporary failure in name resolution"
			}
			return nil, saying(fmt.Sprintf("%s for %s:%d", reason, t.server, t.port), "Problem in resolving basic address and port", glued)
		}
		if err != nil {
			return nil, saying(fmt.Sprintf("Couldn't connect to %s:%d", t.server, t.port), glued)
		}
		return conn, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, saying(fmt.Sprintf("Couldn't listen to port %d", t.port), glued)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	// A backlog of one, so that further clients are not held by a listener that takes one.
	if raw, err := l.(*net.TCPListener).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Listen(int(fd), 1) })
	}
	conn, err := l.Accept()
	if err != nil {
		return nil, saying("accept() failed", glued)
	}
	return conn, nil
}

func (t *tool) ownMTU(info DeviceInfo) int {
	if t.mtu == 0 {
		return info.ActiveMTU
	}
	if mtuCode(t.mtu) == 0 {
		t.say(fmt.Sprintf(" Invalid MTU - %d ", t.mtu), " Please choose mtu from {256,512,1024,2048,4096}",
			fmt.Sprintf(" Will run with the port active mtu - %d", mtuCode(info.ActiveMTU)))
		return info.ActiveMTU
	}
	if t.mtu > info.ActiveMTU {
		fmt.Fprintf(t.stdout, "Requested mtu is higher than active mtu \nChanging to active mtu - %d\n", mtuCode(info.ActiveMTU))
		return info.ActiveMTU
	}
	return t.mtu
}

// gid gives the index and the GID that this side uses. Without -x it is the first IPv4 entry of RoCE v2. An index
// that the table lacks gives a GID of zeros, as in the kernel.
func (t *tool) gid(info DeviceInfo) (int, netip.Addr) {
	if t.gidIndex < 0 {
		for _, g := range info.GIDs {
			if g.GID.Is4In6() || g.GID.Is4() {
				return g.Index, g.GID
			}
		}
		if len(info.GIDs) > 0 {
			return info.GIDs[0].Index, info.GIDs[0].GID
		}
		return 0, netip.Addr{}
	}
	for _, g := range info.GIDs {
		if g.Index == t.gidIndex {
			return g.Index, g.GID
		}
	}
	return t.gidIndex, netip.Addr{}
}

// makeQPs creates the queue pairs. With a GID that does not exist there are none, and the peer is told zeros.
func (t *tool) makeQPs(dev Device, mtu, gidIndex int, gid netip.Addr) ([]QP, []keys, error) {
	var qps []QP
	var mine []keys
	for range t.qps {
		if !gid.IsValid() {
			var psn [3]byte
			_, _ = rand.Read(psn[:])
			mine = append(mine, keys{QPInfo: QPInfo{PSN: uint32(psn[0])<<16 | uint32(psn[1])<<8 | uint32(psn[2]), OutReads: 1}})
			continue
		}
		q, err := dev.CreateQP(QPOptions{
			BufferSize: t.size, TxDepth: t.txDepth, MTU: mtu, GIDIndex: gidIndex, TrafficClass: t.tclass,
			Timeout: t.timeout, RetryCount: t.retry, OutReads: t.outReads(),
		})
		if err != nil {
			return qps, nil, saying(" "+err.Error(), " Couldn't create IB resources")
		}
		qps = append(qps, q)
		if _, ok := q.(ReadPoster); t.read && !ok {
			return qps, nil, saying(ReadBW + ": READ is not supported by this device's queue pairs")
		}
		local := q.Local()
		local.OutReads = t.outReads()
		mine = append(mine, keys{QPInfo: local})
	}
	return qps, mine, nil
}

func (t *tool) outReads() int {
	if t.read {
		return toolOutReads
	}
	return 1
}

// meet exchanges the keys of every queue pair once.
func (t *tool) meet(x exchanger, mine []keys) ([]keys, error) {
	theirs := make([]keys, len(mine))
	for i := range mine {
		k, err := x.handshake(mine[i])
		if err != nil {
			return nil, err
		}
		theirs[i] = k
	}
	return theirs, nil
}

// confirm prints the addresses of both sides, exchanges the keys again when all queue pairs are connected, and once
// more as a barrier.
func (t *tool) confirm(x exchanger, mine []keys) error {
	if t.output == "" {
		for _, k := range mine {
			t.printAddress(t.stdout, "local", k.QPInfo)
		}
	}
	for i := range mine {
		k, err := x.handshake(mine[i])
		if err != nil {
			return err
		}
		if t.output == "" {
			t.printAddress(t.stdout, "remote", k.QPInfo)
		}
	}
	if _, err := x.handshake(mine[0]); err != nil {
		return err
	}
	if t.output == "" {
		t.printHeading(t.stdout)
	}
	return nil
}

func (t *tool) runClient(ctx context.Context, x exchanger, qps []QP, first keys) error {
	sizes := []int{t.size}
	if t.all {
		sizes = nil
		for s := 2; s <= allSizesMax; s *= 2 {
			sizes = append(sizes, s)
		}
	}
	var last report
	for _, size := range sizes {
		r, err := measure(ctx, &t.toolOptions, size, qps)
		if err != nil {
			return t.sayRun(err)
		}
		t.printReport(t.stdout, r)
		last = r
	}
	if t.output == "" {
		io.WriteString(t.stdout, toolRule)
	}
	if _, err := x.handshake(first); err != nil {
		return err
	}
	if _, err := x.report(last); err != nil {
		return err
	}
	return t.part(x, first)
}

// runServer is the target: it waits for the client to say that its test is over.
func (t *tool) runServer(x exchanger, first keys) error {
	if _, err := x.handshake(first); err != nil {
		return err
	}
	r, err := x.report(report{})
	if err != nil {
		return err
	}
	t.printReport(t.stdout, r)
	if err := t.part(x, first); err != nil {
		return err
	}
	if t.output == "" {
		io.WriteString(t.stdout, toolRule)
	}
	return nil
}

// part ends the exchange. The last five bytes need no answer: a peer that is gone already has ended well.
func (t *tool) part(x exchanger, first keys) error {
	if _, err := x.handshake(first); err != nil {
		var broken *exchangeError
		if errors.As(err, &broken) {
			t.say(broken.said...)
		}
		return saying("Failed to close connection between server and client")
	}
	_, _ = io.WriteString(x.rw, oobDone)
	return nil
}

func (t *tool) sayRun(err error) error {
	var run *errRun
	var wc *WCError
	lines := []string{" " + err.Error()}
	if errors.As(err, &run) && errors.As(err, &wc) {
		lines = []string{
			" Completion with error at client",
			fmt.Sprintf(" Failed status %d: wr_id %d syndrom 0x%x", int(wc.Status), wc.WRID, wc.VendorSyndrome),
			fmt.Sprintf("scnt=%d, ccnt=%d", run.scnt, run.ccnt),
		}
	}
	return saying(append(lines, " Failed to complete run_iter_bw function successfully")...)
}
