package inventory

import (
	"net/netip"
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/units"
)

// The shape of a lab file. The types of lab.go are what the rest of the program sees; build.go makes one from the
// other. Pointers are values for which "not given here" differs from zero, because defaults fill them.

// Names are DNS labels, so that they work in file names, ssh_config and override keys. Interface names follow IFNAMSIZ
// (15 characters), RDMA devices IB_DEVICE_NAME_MAX (63). Addresses, users and files do not start with "-", which ssh
// would take for an option.

type fileLab struct {
	Name     string               `yaml:"lab,required" doc:"name of the lab" example:"virtual-4" pattern:"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"`
	Virtual  *fileVirtual         `yaml:"virtual" doc:"build the lab from network namespaces on this machine; without it the hosts exist already"`
	Defaults *fileDefaults        `yaml:"defaults" doc:"values for every host, NIC and link that does not give its own"`
	Hosts    spec.Map[fileHost]   `yaml:"hosts,required" doc:"the machines that are reached by SSH, by name" keys:"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?" minitems:"1"`
	Switches spec.Map[fileSwitch] `yaml:"switches" doc:"the switches, by name" keys:"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"`
	Links    []fileLink           `yaml:"links" doc:"the cables: which NIC is on which switch"`
	Taps     spec.Map[fileTap]    `yaml:"taps" doc:"places where packets can be captured, by name" keys:"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"`
	RDCC     *fileRDCC            `yaml:"rdcc" doc:"the domain of receiver-driven credit control; absent: playbooks must give the port themselves"`
}

type fileVirtual struct {
	TimeScale   *float64      `yaml:"time_scale" doc:"S: rates are built divided by S, delays and protocol times multiplied; 1 when absent" min:"1" max:"100000" example:"50"`
	MaxLateness time.Duration `yaml:"max_lateness" doc:"a run whose timers were later than this (99th percentile) is not judged; 20ms when absent" min:"1us" max:"10s" example:"20ms"`
}

type fileDefaults struct {
	SSH  *fileSSH     `yaml:"ssh" doc:"how hosts are reached"`
	Sudo *bool        `yaml:"sudo" doc:"run what needs it under sudo -n"`
	NIC  *nicSettings `yaml:"nic" doc:"settings of NICs"`
	Link *linkValues  `yaml:"link" doc:"settings of links"`
}

type fileHost struct {
	SSH  *fileSSH  `yaml:"ssh" doc:"how the host is reached; what is absent comes from ssh_config"`
	Sudo *bool     `yaml:"sudo" doc:"run what needs it under sudo -n"`
	NICs []fileNIC `yaml:"nics" doc:"its RDMA ports"`
}

type fileSSH struct {
	Address    string `yaml:"address" doc:"host name, alias of ssh_config, or IP address; the host's name when absent" example:"node1.lab" pattern:"[A-Za-z0-9_:\\[][A-Za-z0-9_.:%\\[\\]-]*"`
	Port       int    `yaml:"port" doc:"TCP port of the SSH server" min:"1" max:"65535" example:"22"`
	User       string `yaml:"user" doc:"login name" example:"lab" pattern:"[A-Za-z0-9_][A-Za-z0-9_.$@-]*"`
	Key        string `yaml:"key" doc:"identity file; ~ is the home folder, a relative path starts at the lab file" example:"~/.ssh/id_ed25519" pattern:"[A-Za-z0-9_~/.][^\\t\\r\\n]*"`
	Jump       string `yaml:"jump" doc:"jump hosts as in ProxyJump, first hop first: a,b; none switches ssh_config's off" example:"gateway.lab" pattern:"[A-Za-z0-9_\\[][A-Za-z0-9_.:%@,\\[\\]/-]*"`
	KnownHosts string `yaml:"known_hosts" doc:"known_hosts file; your own when absent" example:"~/.ssh/known_hosts" pattern:"[A-Za-z0-9_~/.][^\\t\\r\\n]*"`
}

type nicSettings struct {
	Device   string     `yaml:"device" doc:"RDMA device, as in /sys/class/infiniband" example:"mlx5_0" pattern:"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}"`
	Netdev   string     `yaml:"netdev" doc:"its network interface" example:"eth0" pattern:"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,14}"`
	Port     *int       `yaml:"port" doc:"RDMA port number; 1 when absent" min:"1" max:"254"`
	GIDIndex *int       `yaml:"gid_index" doc:"GID table index; when absent, the RoCE v2 entry with the NIC's IP address is looked up on the host" min:"0" max:"255"`
	Backend  string     `yaml:"backend" doc:"kind of NIC; docapcc is an mlx5 whose handlers are programs of NVIDIA DOCA PCC" enum:"softnic,rxe,mlx5,docapcc"`
	BuildOn  string     `yaml:"build_on" doc:"host of the lab with NVIDIA's compiler DPACC, which builds the programs of a docapcc NIC; its own host when absent" example:"build1" pattern:"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"`
	Rate     units.Rate `yaml:"rate" doc:"line rate of the hardware; the link's when absent" example:"25Gbit/s" min:"1kbit/s"`
	MTU      *int       `yaml:"mtu" doc:"MTU of the network interface; RoCE's path MTU is the largest of 256 to 4096 that fits with about 80 bytes of headers; 1500 when absent" min:"576" max:"65535" example:"4200"`
	DSCP     *int       `yaml:"dscp" doc:"DSCP of data packets; 0 when absent" min:"0" max:"63" example:"26"`
	ECN      *bool      `yaml:"ecn" doc:"data packets are ECN-capable; true when absent"`
	Priority *int       `yaml:"priority" doc:"802.1p priority of data packets; 0 when absent" min:"0" max:"7" example:"3"`
	DCQCN    *bool      `yaml:"dcqcn" doc:"the NIC's own congestion control; the backend's default when absent"`
	Handler  string     `yaml:"handler" doc:"PCM handler that decides in place of it, for all flows: a name (pcmlab handler ls), the path of a package, or none" example:"swift" pattern:"[A-Za-z0-9_~/.][^\\t\\r\\n]*"`

	Handlers []fileHandler `yaml:"handlers" doc:"several PCM handlers, each for the flows that it matches; the first that sets a control of a flow keeps it"`
}

type fileHandler struct {
	Handler string                `yaml:"handler,required" doc:"a name (pcmlab handler ls), the path of a package, or none: the NIC's own congestion control" example:"swift" pattern:"[A-Za-z0-9_~/.][^\\t\\r\\n]*"`
	Match   *fileHandlerMatch     `yaml:"match" doc:"the flows that it is for; all when absent"`
	Set     spec.Map[spec.Scalar] `yaml:"set" doc:"constants of the package that have another value: a number or an expression" keys:"[A-Za-z_][A-Za-z0-9_]*"`
}

type fileHandlerMatch struct {
	To   spec.OneOrMany[netip.Prefix] `yaml:"to" doc:"where the flow goes: a network or several, one of which must hold" example:"192.0.2.0/24"`
	DSCP *int                         `yaml:"dscp" doc:"DSCP of its data packets" min:"0" max:"63" example:"26"`
	QP   spec.Scalar                  `yaml:"qp" doc:"which queue pair of its process, from 1: 2, or 2-4" example:"1"`
	Role string                       `yaml:"role" doc:"role that the playbook gives to the host where it goes" example:"receiver" pattern:"[a-z][a-z0-9_-]*"`
}

type fileNIC struct {
	nicSettings
	IP  netip.Prefix `yaml:"ip,required" doc:"data address with prefix length" example:"192.0.2.11/24"`
	IP6 netip.Prefix `yaml:"ip6" doc:"IPv6 data address beside ip, for playbooks with traffic.ipv6" example:"2001:db8::11/64"`
}

type fileSwitch struct {
	Host    string           `yaml:"host" doc:"host on which its counters and taps are read; absent: it cannot be asked" example:"sw" pattern:"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"`
	Backend string           `yaml:"backend" doc:"how it is asked: fabric is the software switch, and what a virtual lab's switch is when absent; linux is a bridge or router with tc, whose ports are named under ports" enum:"fabric,linux"`
	Ports   spec.Map[string] `yaml:"ports" doc:"interfaces of its host by the name of the host or switch behind them, of a linux switch" keys:"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"`
	Buffer  units.Size       `yaml:"buffer" doc:"packet buffer shared by its ports" example:"2MiB" min:"1KiB"`
	ECN     *fileECN         `yaml:"ecn" doc:"marking curve of each port's queue; absent: no marks"`
	PFC     *filePFC         `yaml:"pfc" doc:"priority flow control; absent: off"`
}

type fileECN struct {
	KMin units.Size `yaml:"kmin,required" doc:"no packet is marked while the queue is shorter" example:"100KiB"`
	KMax units.Size `yaml:"kmax,required" doc:"every packet is marked when the queue is longer" example:"400KiB"`
	PMax float64    `yaml:"pmax,required" doc:"marking probability at kmax" example:"0.2" above:"0" max:"1"`
}

type filePFC struct {
	Priorities []int      `yaml:"priorities,required" doc:"the lossless priorities" example:"[3]" min:"0" max:"7" minitems:"1" maxitems:"8"`
	XOff       units.Size `yaml:"xoff,required" doc:"pause is sent when a priority's ingress queue is longer" example:"256KiB" min:"1B"`
	XOn        units.Size `yaml:"xon,required" doc:"sending may go on when it is shorter" example:"200KiB"`
}

type linkValues struct {
	Rate   units.Rate     `yaml:"rate" doc:"rate of the hardware; the NIC's when absent" example:"25Gbit/s" min:"1kbit/s"`
	Delay  *time.Duration `yaml:"delay" doc:"one way, in hardware time; none when absent" example:"1us" max:"10s"`
	Buffer units.Size     `yaml:"buffer" doc:"limit of the switch's egress queue on this link; only the shared buffer when absent" example:"64KiB" min:"1KiB"`
}

type fileLink struct {
	From string `yaml:"from,required" doc:"host.netdev, a host with one NIC, or a switch" example:"h1.eth0" pattern:"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\\.[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,14})?"`
	To   string `yaml:"to,required" doc:"the other end" example:"sw" pattern:"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\\.[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,14})?"`
	linkValues
}

type fileTap struct {
	Host      string                 `yaml:"host,required" doc:"host on which the capture runs" example:"sw" pattern:"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"`
	Iface     string                 `yaml:"iface,required" doc:"interface that is captured there" example:"mir-out" pattern:"[A-Za-z0-9_][A-Za-z0-9_.:@-]{0,14}"`
	Switch    string                 `yaml:"switch" doc:"the switch whose ports are mirrored to the interface; absent: the interface's own packets" example:"sw" pattern:"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"`
	Ports     spec.OneOrMany[string] `yaml:"ports" doc:"hosts behind the mirrored ports" example:"r1" pattern:"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"`
	Direction string                 `yaml:"direction" doc:"what the mirror sees, from the switch: ingress is before its queue, egress after queue, marks and drops" enum:"ingress,egress,both"`
}
