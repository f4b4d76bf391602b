package experiments

import (
	"time"

	"github.com/pcmlab/pcmlab/internal/spec"
	"github.com/pcmlab/pcmlab/internal/units"
)

// playbookFile is the shape of a playbook on disk. newPlaybook turns it into a Playbook.
type playbookFile struct {
	Playbook string                           `yaml:"playbook,required" pattern:"[a-z0-9][a-z0-9-]*" example:"incast-3to1" doc:"name of the experiment"`
	About    string                           `yaml:"about" doc:"what it shows, for people"`
	Hosts    spec.Map[spec.OneOrMany[string]] `yaml:"hosts,required" keys:"[a-z][a-z0-9_-]*" minitems:"1" doc:"roles and the lab's hosts that play them, such as receiver: r1"`
	Traffic  trafficSpec                      `yaml:"traffic" doc:"the tool that drives the flows, and its arguments"`
	Handler  string                           `yaml:"handler" pattern:"[A-Za-z0-9_~/.][^\\t\\r\\n]*" example:"swift" doc:"PCM handler of every sender, in place of the lab's: a name (pcmlab handler ls), the path of a package, or none"`
	Diag     bool                             `yaml:"diagnostic" doc:"every invocation of a handler is logged and plotted"`
	RDCC     *rdccSpec                        `yaml:"rdcc" doc:"receiver-driven credit control of the flows to some receivers (docs/rdcc.md)"`
	Flows    spec.Map[flowSpec]               `yaml:"flows,required" keys:"[a-z0-9][a-z0-9_-]*" minitems:"1" doc:"the flows by name"`
	Phases   []phaseSpec                      `yaml:"phases,required" minitems:"1" doc:"what starts and stops when"`
	Setup    []setupSpec                      `yaml:"setup" doc:"settings of hosts that are changed for the run and put back, in order"`
	Measure  measureSpec                      `yaml:"measure" doc:"how phases are measured"`
	Captures []captureSpec                    `yaml:"captures" doc:"taps of the lab that are captured during the run"`
	Expect   []expectSpec                     `yaml:"expect" doc:"what must hold"`

	Repeat     int                   `yaml:"repeat" default:"1" min:"1" max:"10000" doc:"runs of each cell"`
	Warmup     int                   `yaml:"warmup" default:"0" min:"0" max:"1000" doc:"runs of each cell before, which are not counted"`
	Seed       uint64                `yaml:"seed" default:"1" min:"0" doc:"seed of the order of a sweep and of what a lab draws"`
	Thresholds spec.Map[spec.Scalar] `yaml:"thresholds" doc:"how much worse a score may become before pcmlab compare calls it worse, such as goodput: 3%"`
	Matrix     *matrixSpec           `yaml:"matrix" doc:"combinations of parameters that are run, the cells of a sweep"`
}

// matrixSpec spans the cells of a sweep. A parameter is a setting as --set knows it.
type matrixSpec struct {
	Vary    spec.Map[spec.OneOrMany[spec.Scalar]]   `yaml:"vary" doc:"parameters and their values: all combinations are run"`
	Zip     []spec.Map[spec.OneOrMany[spec.Scalar]] `yaml:"zip" doc:"groups of parameters that advance together"`
	Include []spec.Map[spec.Scalar]                 `yaml:"include" doc:"further cells, as written"`
	Exclude []spec.Map[spec.Scalar]                 `yaml:"exclude" doc:"cells that have all of these values are left out"`
	Order   string                                  `yaml:"order" enum:"shuffled,listed" default:"shuffled" doc:"shuffled: each repeat is a block of all cells in an order of its own; listed: blocks in the order of the file"`
	Budget  time.Duration                           `yaml:"budget" min:"1s" max:"720h" doc:"time after which no trial begins that would not end in time"`
}

type trafficSpec struct {
	Tool    string        `yaml:"tool" enum:"ib_write_bw,ib_send_bw,ib_read_bw" default:"ib_write_bw" doc:"traffic tool"`
	Size    units.Size    `yaml:"size" default:"64KiB" min:"1" max:"1GiB" doc:"message size (-s)"`
	QPs     int           `yaml:"qps" default:"1" min:"1" max:"1024" doc:"queue pairs per flow (-q)"`
	TxDepth int           `yaml:"tx_depth" default:"128" min:"1" max:"16384" doc:"messages posted at a time (-t)"`
	MTU     int           `yaml:"mtu" doc:"path MTU in bytes (-m); the NIC's own when absent"`
	Timeout *int          `yaml:"timeout" min:"0" max:"31" doc:"QP timeout exponent: 4.096 us * 2^timeout (-u)"`
	Port    int           `yaml:"port" default:"18515" min:"1024" max:"65000" doc:"first TCP port of the pool of each receiver (-p)"`
	Ports   int           `yaml:"ports" default:"100" min:"1" max:"10000" doc:"number of ports in the pool"`
	Margin  *int          `yaml:"margin" min:"0" max:"60" doc:"seconds at both ends that the tool itself does not measure (-f)"`
	RDMACM  bool          `yaml:"rdma_cm" doc:"connect by RDMA-CM (-R)"`
	IPv6    bool          `yaml:"ipv6" doc:"between the ip6 addresses of the lab's NICs"`
	Rate    units.Rate    `yaml:"rate_limit" min:"1kbit/s" example:"20Mbit/s" doc:"what the tool itself sends at most, each flow (--rate_limit)"`
	Within  string        `yaml:"rate_tolerance" pattern:"[0-9]{1,2}(\\.[0-9]+)?%" example:"10%" doc:"how far from rate_limit what was sent may be before the run fails; when absent it fails nothing, and beyond 5% is a warning"`
	Burst   int           `yaml:"burst" min:"1" max:"15000" doc:"messages that it sends at a time under a rate_limit (--burst_size); 1 when absent"`
	Args    []spec.Scalar `yaml:"args" doc:"further arguments of the tool: -b, -N, -Q N, -l N, -I N, -S N, --retry_count=N"`
}

type flowSpec struct {
	From string `yaml:"from,required" doc:"host that sends the data"`
	To   string `yaml:"to,required" doc:"host that receives it"`

	Size    *units.Size `yaml:"size" min:"1" max:"1GiB" example:"2KiB" doc:"message size of this flow alone, in place of traffic.size"`
	QPs     *int        `yaml:"qps" min:"1" max:"1024" doc:"queue pairs of this flow alone, in place of traffic.qps"`
	TxDepth *int        `yaml:"tx_depth" min:"1" max:"16384" doc:"messages posted at a time by this flow alone, in place of traffic.tx_depth"`

	Handler string `yaml:"handler" pattern:"[A-Za-z0-9_~/.][^\\t\\r\\n]*" example:"swift" doc:"PCM handler of this flow alone, in place of the playbook's and the lab's; none: the NIC's own congestion control"`
}

type phaseSpec struct {
	Name  string                 `yaml:"name,required" pattern:"[a-z0-9][a-z0-9_-]*" doc:"name of the phase"`
	Start spec.OneOrMany[string] `yaml:"start" doc:"flows that start when the phase begins"`
	Stop  spec.OneOrMany[string] `yaml:"stop" doc:"flows that have stopped when the phase begins"`
	For   time.Duration          `yaml:"for,required" min:"100ms" max:"24h" example:"8s" doc:"how long the phase lasts"`
}

type measureSpec struct {
	TrimStart  string         `yaml:"trim_start" default:"10%" pattern:"[0-9]{1,2}%|[0-9]+(\\.[0-9]+)?(ms|s)" doc:"part at the start of each phase that is not measured"`
	TrimEnd    string         `yaml:"trim_end" default:"2%" pattern:"[0-9]{1,2}%|[0-9]+(\\.[0-9]+)?(ms|s)" doc:"part at the end of each phase that is not measured"`
	Sample     *time.Duration `yaml:"sample" min:"0s" max:"1h" example:"1s" doc:"how often counters and clocks of all hosts are read during the phases; 0s: at their borders only, which is what a virtual lab does when absent; else 1s"`
	Analyze    string         `yaml:"analyze" enum:"auto,here,there" default:"auto" doc:"where captures are analysed: here, all are fetched; there, on the host on which they lie, and they stay there; auto: here up to fetch_limit"`
	FetchLimit units.Size     `yaml:"fetch_limit" default:"2GiB" min:"1KiB" doc:"captures that are larger together are analysed where they lie"`
	Bin        time.Duration  `yaml:"bin" default:"20ms" min:"100us" max:"1m" doc:"bin of the time series"`
}

type captureSpec struct {
	Tap        string     `yaml:"tap,required" doc:"tap of the lab"`
	Judge      bool       `yaml:"judge" doc:"the metrics come from this tap: the one behind the bottleneck"`
	Snaplen    int        `yaml:"snaplen" default:"128" min:"64" max:"65535" doc:"bytes kept of each packet"`
	Filter     string     `yaml:"filter" example:"roce or pfc" doc:"packets that are kept: all, or terms joined by or: roce, pfc, udp port N; RoCE, and RDCC where the run is under credit control, when absent"`
	FileSize   units.Size `yaml:"file_size" min:"1MiB" example:"256MiB" doc:"a new file is begun before one becomes longer; one file when absent"`
	Files      int        `yaml:"files" min:"2" max:"99999" example:"8" doc:"so many files are kept, the newest; needs file_size; all when absent"`
	Program    string     `yaml:"program" enum:"auto,pcmlab,dumpcap,tcpdump" default:"auto" doc:"what captures; auto: pcmlab where it may run and capture, else dumpcap, else tcpdump"`
	Timestamps string     `yaml:"timestamps" enum:"software,hardware" default:"software" doc:"hardware: the NIC's own clock, where it stamps every packet that it receives"`
	Optional   bool       `yaml:"optional" doc:"a lab without this tap runs the playbook all the same"`
}

type expectSpec struct {
	Name  string                 `yaml:"name" doc:"name of the check; the expression itself when absent"`
	That  string                 `yaml:"that,required" example:"jain(phase=\"three\") >= 0.95" doc:"expression that must hold (pcmlab help expectations)"`
	Needs spec.OneOrMany[string] `yaml:"needs" doc:"capabilities without which the expectation is skipped: ecn, cnp, cc, pfc; rdcc or without_rdcc: it speaks of runs with or without credit control"`
}
