package perftest

import "regexp"

// rule maps words of the tool to a class. A consequence tells only that the other side, or something before, failed.
type rule struct {
	pattern     *regexp.Regexp
	class       Class
	consequence bool
	fix         string
}

// rules are tried in order on each side's lines; the first that matches any line of the side is its finding.
var rules = []rule{
	{re(`Failed status (\d+)|Completion with error`), Completion, false, "look at the path between the two data addresses first, then at the counters of both NICs"},
	{re(`unrecognized option|option requires an argument|Invalid Command or flag`), BadOption, false, "leave the option out, or use a perftest that has it"},
	{re(`Duration mode currently doesn't support running on all sizes`), BadOption, false, "give a duration (-D) or all sizes (-a), not both"},
	{re(`please check that DURATION`), BadOption, false, "make the margin (-f) less than half of the duration (-D)"},
	{re(`margin is not long enough`), BadOption, false, "give a longer margin (-f) or a smaller tx_depth (-t)"},
	{re(`should be between \S+ and|not supported by the software NIC|must be a multiple of|Parser function exited with Error`), BadOption, false, "give a value that the tool accepts"},
	{re(`IB device \S+ not found|Did not detect devices|Unable to find the Infiniband`), DeviceClass, false, "name an RDMA device that exists on this host (ls /sys/class/infiniband), or load its driver"},
	{re(`Port number \d+ state is|Couldn't set the link layer`), DeviceClass, false, "bring the port up: ip link set NETDEV up, then check cable, switch port and `rdma link`"},
	{re(`Failed to query device cap|Couldn't get device attributes`), DeviceClass, false, "this perftest does not know the device: use the same, older version on both hosts"},
	{re(`Couldn't allocate MR|[Ff]ailed to create [Mm][Rr]|Couldn't create IB resources`), MemLock, false, "raise the memory lock limit: ulimit -l unlimited, or memlock in /etc/security/limits.conf"},
	{re(`Couldn't listen to port`), PortInUse, false, "another process holds the TCP port: give this flow another port, or end the one that `ss -ltnp` shows"},
	{re(`Address family for hostname not supported`), Unresolved, false, "this perftest meets on IPv4 only: give the server's NIC an ip: of IPv4 beside its ip6:, or use a perftest that has --ipv6-addr"},
	{re(`failure in name resolution|Name or service not known|No address associated|Problem in resolving basic address`), Unresolved, false, "give the server's data address instead of a name"},
	{re(`Incompatibility issue with GID types|Failed to modify QP \S+ to RTR|Unable to Connect the HCA|Failed to create AH`), GIDClass, false, "choose on each host the GID index that is RoCE v2 and holds its data address (show_gids, or gid_index in the inventory)"},
	{re(`Unexpected CM event|Unable to perform rdma_(client|server) function|Failed to create RDMA CM connection`), ConnManager, false, "start both sides with -R, and give the address of the RDMA interface, not the management one"},
	{re(`not compatible with versions older`), VersionMix, false, "install the same perftest version on both hosts"},
	{re(`Can't produce a report`), NoReport, false, "the CPU's clock could not be calibrated (/proc/cpuinfo, r^2 < 0.9): use an idle host, or a newer perftest"},
	{re(`below bw limit|below msg_rate limit`), LimitClass, false, "the measured rate is under the limit that was given (-w, -y)"},
	{re(`command not found|No such file or directory|Exec format error|Permission denied|cannot execute`), ToolMissing, false, toolFix},
	{re(`Couldn't connect to`), StartRace, true, "nothing listens there: start the server first and wait until it listens; one server process takes one client on one port"},
	{re(`Couldn't read remote address|Couldn't read reports|Failed to exchange data|Unable to (read|write) (to|from) socket|Couldn't send|Connection reset`), PeerLost, true, "look at why the other side ended"},
}

func re(s string) *regexp.Regexp { return regexp.MustCompile(s) }
