package export

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"
)

func testRedactor() *redactor {
	r := newRedactor(newPseudonyms("for tests"))
	r.host("h1")
	r.host("gpu17.corp.example.com")
	r.word("bob", r.name("user", "bob"))
	r.home("/srv/people/eve/")
	return r
}

func TestRedactor_text(t *testing.T) {
	r := testRedactor()
	p4 := r.addr(netip.MustParseAddr("192.0.2.11")).String()
	p6 := r.addr(netip.MustParseAddr("2001:db8:1::b")).String()
	host, bob, root := r.name("host", "h1"), r.name("user", "bob"), r.name("user", "root")
	gpu, domain := r.name("host", "gpu17"), r.name("domain", "corp.example.com")+".invalid"
	mac := r.macText("52:54:00:12:34:56")
	low := strings.TrimPrefix(p4, "10.")
	for _, c := range []struct{ name, text, want string }{
		{"plain", "goodput 0.487 Gb/s at 05:32:42, version 6.18.44", "goodput 0.487 Gb/s at 05:32:42, version 6.18.44"},
		{"flow_id", "192.0.2.11>192.0.2.11:0x004f5d", p4 + ">" + p4 + ":0x004f5d"},
		{"flow_id_ipv6", "2001:db8:1::b>2001:db8:1::b:0x004f5d", p6 + ">" + p6 + ":0x004f5d"},
		{"prefix_and_port", "192.0.2.11/24 192.0.2.11:22", p4 + "/24 " + p4 + ":22"},
		{"in_brackets", "[2001:db8:1::b]:22, 2001:db8:1::b.", "[" + p6 + "]:22, " + p6 + "."},
		{"mapped", "::ffff:192.0.2.11", "::ffff:" + p4},
		{"decimal_gid", "GID: 00:00:00:00:00:00:00:00:00:00:255:255:192:00:02:11", "GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:" + decimals(low)},
		{"same_everywhere", "127.0.0.1 0.0.0.0 255.255.255.255 224.0.0.1 :: ::1 ff02::1", "127.0.0.1 0.0.0.0 255.255.255.255 224.0.0.1 :: ::1 ff02::1"},
		{"mac", "52:54:00:12:34:56 52-54-00-12-34-56", mac + " " + strings.ReplaceAll(mac, ":", "-")},
		{"words", "h1 h1: sw-out-h1.pcapng h12 ah1 \"h1\" h1.eth0 tx_h1_x", host + " " + host + ": sw-out-" + host + ".pcapng h12 ah1 \"" + host + "\" " + host + ".eth0 tx_" + host + "_x"},
		{"domain", "gpu17.corp.example.com gpu17 db.corp.example.com", gpu + " " + gpu + " db." + domain},
		{"home", "/home/bob/x /Users/bob/y bob@h1", "/home/" + bob + "/x /Users/" + bob + "/y " + bob + "@" + host},
		{"another_home", "/srv/people/eve/.cache /srv/people/eve: /srv/people/evelyn", "/home/" + r.name("user", "/srv/people/eve") + "/.cache /home/" + r.name("user", "/srv/people/eve") + ": /srv/people/evelyn"},
		{"root", "/root/.cache root@h1 user: root rootless /chroot/root-x", "/home/" + root + "/.cache " + root + "@" + host + " user: " + root + " rootless /chroot/root-x"},
	} {
		if got := r.text(c.text); got != c.want {
			t.Errorf("%s: %q became\n%q, want\n%q", c.name, c.text, got, c.want)
		}
	}
	if got := r.text("f5acce5b-bad4-40d2-9c4b-66f73c0b7782"); !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(got) {
		t.Errorf("UUID became %s", got)
	}
}

// decimals writes the last three bytes of an address as perftest does.
func decimals(dotted string) string {
	parts := strings.Split(dotted, ".")
	for i, p := range parts {
		if len(p) < 2 {
			parts[i] = "0" + p
		}
	}
	return strings.Join(parts, ":")
}

func TestRedactor_jsonText(t *testing.T) {
	r := testRedactor()
	host := r.name("host", "h1")
	hash := strings.Repeat("ab", 32)
	in := `{"nics": {"h1": {"rx_h1": 10.20, "x": null}}, "names": {"192.0.2.11": "h1"}, "nic.h1": 1e5, "inputs_sha256": "` + hash + `", "sha256": "` + hash + `", "s": "a \"h1\" \u003c é"}` + "\n"
	want := `{"nics": {"` + host + `": {"rx_h1": 10.20, "x": null}}, "names": {"` + r.text("192.0.2.11") + `": "` + host + `"}, "nic.` + host + `": 1e5, "inputs_sha256": "` +
		r.hash(hash) + `", "sha256": "` + hash + `", "s": "a \"` + host + `\" < é"}` + "\n"
	got, err := r.jsonText([]byte(in))
	if err != nil || string(got) != want {
		t.Errorf("%s\nwant\n%s%v", got, want, err)
	}
	if _, err := r.jsonText([]byte(`{"a`)); err == nil {
		t.Error("a string without end was taken")
	}
}

// TestPseudonyms: the same secret gives the same pseudonyms, another one others, and no two addresses become one.
func TestPseudonyms(t *testing.T) {
	a, b, c := newPseudonyms("x"), newPseudonyms("x"), newPseudonyms("")
	seen := map[netip.Addr]bool{}
	same := 0
	for i := range 20_000 {
		addr := netip.AddrFrom4([4]byte{192, 168, byte(i >> 8), byte(i)})
		got := a.addr(addr)
		if seen[got] || !netip.MustParsePrefix("10.0.0.0/8").Contains(got) {
			t.Fatalf("%v became %v", addr, got)
		}
		seen[got] = true
		if got != b.addr(addr) {
			t.Fatalf("%v became %v and %v with the same secret", addr, got, b.addr(addr))
		}
		if got == c.addr(addr) {
			same++
		}
	}
	if same > 10 {
		t.Errorf("%d of 20,000 are the same with another secret", same)
	}
	if c.name("host", "h1") == newPseudonyms("").name("host", "h1") {
		t.Error("two archives without a secret have the same pseudonyms")
	}
}
