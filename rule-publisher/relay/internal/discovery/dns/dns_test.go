package dns

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/table"
)

// zone is a DNS server for tests, over UDP. A name without an entry does not exist; for a name with
// an empty list of records the server answers with a failure.
type zone struct {
	mu      sync.Mutex
	records map[string][]dnsmessage.ResourceBody
	address string
}

func startZone(t *testing.T) *zone {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	z := &zone{records: map[string][]dnsmessage.ResourceBody{}, address: conn.LocalAddr().String()}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			var query dnsmessage.Message
			if query.Unpack(buffer[:n]) != nil {
				continue
			}
			reply := z.answer(query)
			if packed, err := reply.Pack(); err == nil {
				conn.WriteTo(packed, from) //nolint:errcheck // the asker asks again
			}
		}
	}()
	return z
}

func (z *zone) set(name string, records ...dnsmessage.ResourceBody) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.records[name+"."] = records
}

func (z *zone) answer(query dnsmessage.Message) dnsmessage.Message {
	z.mu.Lock()
	defer z.mu.Unlock()
	question := query.Questions[0]
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: query.ID, Response: true, Authoritative: true}, Questions: query.Questions}
	records, ok := z.records[question.Name.String()]
	if !ok {
		reply.RCode = dnsmessage.RCodeNameError
	} else if len(records) == 0 {
		reply.RCode = dnsmessage.RCodeServerFailure
	}
	for _, record := range records {
		kind := dnsmessage.TypeSRV
		switch record.(type) {
		case *dnsmessage.AResource:
			kind = dnsmessage.TypeA
		case *dnsmessage.AAAAResource:
			kind = dnsmessage.TypeAAAA
		}
		if kind == question.Type {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{Body: record,
				Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 1}})
		}
	}
	return reply
}

func a(d byte) dnsmessage.ResourceBody { return &dnsmessage.AResource{A: [4]byte{10, 0, 0, d}} }
func aaaa(d byte) dnsmessage.ResourceBody {
	return &dnsmessage.AAAAResource{AAAA: [16]byte{0xfd, 15: d}}
}
func srv(priority, port uint16, target string) dnsmessage.ResourceBody {
	return &dnsmessage.SRVResource{Priority: priority, Port: port, Target: dnsmessage.MustNewName(target + ".")}
}

// run starts a source for the names, which are looked up every 10 ms.
func run(t *testing.T, z *zone, names ...string) (next func() string, counters *count.Counters) {
	t.Helper()
	counters = &count.Counters{}
	s := &Source{Place: table.Place{Service: "shop", Cluster: "south"}, Refresh: 10 * time.Millisecond, Resolver: NewResolver(z.address),
		Counters: counters, Log: slog.New(slog.DiscardHandler)}
	for _, text := range names {
		name, err := table.ParseName(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Names = append(s.Names, name)
	}
	found := make(chan string)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go s.Run(ctx, func(all table.Found) {
		var texts []string
		for _, e := range all[s.Place] {
			texts = append(texts, e.Address.String())
		}
		select {
		case found <- strings.Join(texts, " "):
		case <-ctx.Done():
		}
	})
	return func() string {
		select {
		case text := <-found:
			return text
		case <-time.After(10 * time.Second):
			return "nothing"
		}
	}, counters
}

func expect(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("found %q, want %q", got, want)
	}
}

// TestFollowsRecords checks that each change of the records is passed on once. A failed look-up, of
// whatever kind, is counted and leaves the last successful answer in force.
func TestFollowsRecords(t *testing.T) {
	z := startZone(t)
	z.set("shop.test", a(2), a(1), aaaa(1))
	next, counters := run(t, z, "shop.test.:80")
	expect(t, next(), "10.0.0.1:80 10.0.0.2:80")
	z.set("shop.test")
	for counters.Get(count.NamesFailed) < 3 {
		time.Sleep(time.Millisecond)
	}
	z.set("shop.test", a(3))
	expect(t, next(), "10.0.0.3:80")
	z.set("shop.test", aaaa(4))
	expect(t, next(), "[fd00::4]:80")
	if counters.Get(count.NamesNeverResolved) != 0 {
		t.Error("a name that was resolved counts as never resolved")
	}
}

// TestSeveralNames checks that two names of one place are joined. A name that does not exist is
// counted and does not affect the other.
func TestSeveralNames(t *testing.T) {
	z := startZone(t)
	z.set("one.test", a(1))
	next, counters := run(t, z, "one.test.:80", "missing.test.:81")
	expect(t, next(), "10.0.0.1:80")
	if counters.Get(count.NamesNeverResolved) != 1 {
		t.Error("a name that does not exist is not counted")
	}
	z.set("missing.test", a(2))
	expect(t, next(), "10.0.0.1:80 10.0.0.2:81")
}

// TestServiceRecords checks that SRV targets of the best priority are used with their own ports,
// and that one unresolvable target fails the name.
func TestServiceRecords(t *testing.T) {
	z := startZone(t)
	z.set("_http._tcp.shop.test", srv(1, 8080, "one.test"), srv(1, 8081, "two.test"), srv(2, 8082, "backup.test"))
	z.set("one.test", a(1))
	z.set("two.test")
	next, counters := run(t, z, "_http._tcp.shop.test.")
	for counters.Get(count.NamesFailed) < 1 {
		time.Sleep(time.Millisecond)
	}
	z.set("two.test", a(2))
	expect(t, next(), "10.0.0.1:8080 10.0.0.2:8081")
}

// TestAddressesAreBounded checks that the number of addresses of one name is bounded.
func TestAddressesAreBounded(t *testing.T) {
	var many []net.IP
	for i := range 600 {
		many = append(many, net.IPv4(10, 1, byte(i/200), byte(i%200)))
	}
	counters := &count.Counters{}
	s := &Source{Resolver: fixed(many), Counters: counters}
	got, err := s.lookUp(t.Context(), table.Name{Host: "many.test", Port: 80})
	if err != nil || len(got) != maxAddresses || counters.Get(count.EndpointsCut) != 600-maxAddresses {
		t.Errorf("%d addresses, %d cut, %v", len(got), counters.Get(count.EndpointsCut), err)
	}
}

// fixed is a resolver without a server, because 600 records do not fit into one packet.
type fixed []net.IP

func (f fixed) LookupNetIP(context.Context, string, string) (out []netip.Addr, err error) {
	for _, ip := range f {
		address, _ := netip.AddrFromSlice(ip)
		out = append(out, address)
	}
	return out, nil
}

func (f fixed) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	return "", nil, nil
}
