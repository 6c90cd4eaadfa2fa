package access

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/source"
	"spillway.dev/relay/internal/testkit"
)

const natsFiles = "../../../../infra/nats"

// leafWorld runs the leaf node of cluster north. It has addresses for the global region's NATS
// server and for its standby. Every server uses a file of infra/nats unchanged.
type leafWorld struct {
	t         *testing.T
	ca        string
	leafPorts map[string]int // for leaf nodes, by region
	ports     map[string]int // for everybody else
	leaf      *natsserver.Server
}

func newLeafWorld(t *testing.T) *leafWorld {
	t.Helper()
	folder, pair := t.TempDir(), harness.Authority.Issue("", time.Hour)
	w := &leafWorld{t: t, ca: filepath.Join(folder, "ca.crt"), leafPorts: map[string]int{}, ports: map[string]int{}}
	certificate, key := filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	for path, content := range map[string][]byte{w.ca: harness.Authority.PEM, certificate: pair.Cert, key: pair.Key} {
		testkit.Must(t, os.WriteFile(path, content, 0o600))
	}
	for _, region := range []string{"hub", "standby"} {
		w.ports[region], w.leafPorts[region] = testkit.FreePort(t), testkit.FreePort(t)
		t.Setenv("NATS_"+strings.ToUpper(region)+"_URL", fmt.Sprintf("tls://relay-north:of-north@localhost:%d", w.leafPorts[region]))
	}
	for variable, value := range map[string]string{"NATS_RELAY_NORTH_PASSWORD": "of-north", "NATS_LEAF_NAME": "leaf-north",
		"NATS_HUB_CA": w.ca, "NATS_HUB_CERT": certificate, "NATS_HUB_KEY": key, "NATS_LEAF_CERT": certificate, "NATS_LEAF_KEY": key} {
		t.Setenv(variable, value)
	}
	w.leaf = startConfigured(t, "leaf.conf", testkit.FreePort(t))
	return w
}

// start starts the hub or the standby, and returns when the leaf is connected to it.
func (w *leafWorld) start(region, dataFolder string) *natsserver.Server {
	w.t.Helper()
	w.t.Setenv("NATS_DATA_DIR", dataFolder)
	w.t.Setenv("NATS_LEAF_LISTEN", fmt.Sprintf("127.0.0.1:%d", w.leafPorts[region]))
	server := startConfigured(w.t, "hub.conf", w.ports[region])
	testkit.Eventually(w.t, "the leaf is connected to "+region, func() bool { return server.NumLeafNodes() == 1 })
	return server
}

func (w *leafWorld) stop(server *natsserver.Server) {
	w.t.Helper()
	server.Shutdown()
	server.WaitForShutdown()
	testkit.Eventually(w.t, "the leaf is alone", func() bool { return w.leaf.NumLeafNodes() == 0 })
}

// relay starts a relay that knows only the leaf.
func (w *leafWorld) relay() *harness.Relay {
	w.t.Helper()
	conf := harness.Config(w.t, "")
	conf.NATS = source.NATS{URL: w.leafURL("relay-north", "of-north"), CA: w.ca}
	return harness.StartRelay(w.t, conf)
}

func (w *leafWorld) leafURL(user, password string) string {
	return fmt.Sprintf("tls://%s:%s@localhost:%s", user, password, w.leaf.Addr().String()[len("127.0.0.1:"):])
}

// startConfigured runs NATS with a file of infra/nats. Its users are the relay of north, rendered
// as in spillway_lab, and `anybody`, who may do everything.
func startConfigured(t *testing.T, file string, port int) *natsserver.Server {
	t.Helper()
	t.Setenv("NATS_LISTEN", fmt.Sprintf("127.0.0.1:%d", port))
	t.Setenv("NATS_MONITOR_LISTEN", testkit.FreeAddress(t))
	relay, err := os.ReadFile(filepath.Join(natsFiles, "users/relay.conf"))
	testkit.Must(t, err)
	values := strings.NewReplacer("@CLUSTER@", "north", "@USER@", "relay-north", "@PASSWORD@", "NATS_RELAY_NORTH_PASSWORD",
		"@INBOX@", strings.ReplaceAll(names.NatsInboxRelay, "{cluster}", "north"))
	folder := t.TempDir()
	users := fmt.Sprintf("users: [\n{\n%s\n}\n{user: anybody, password: secret}\n]\n", values.Replace(string(relay)))
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "users.conf"), []byte(users), 0o600))
	for _, name := range []string{"nats.conf", file} {
		text, err := os.ReadFile(filepath.Join(natsFiles, name))
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(filepath.Join(folder, name), text, 0o600))
	}
	options, err := natsserver.ProcessConfigFile(filepath.Join(folder, file))
	testkit.Must(t, err)
	options.NoSigs, options.NoLog = true, true
	server, err := natsserver.NewServer(options)
	testkit.Must(t, err)
	server.Start()
	t.Cleanup(func() { server.Shutdown(); server.WaitForShutdown() })
	if !server.ReadyForConnections(testkit.Patience) {
		t.Fatalf("%s: NATS does not start", file)
	}
	return server
}

func acknowledges(version uint64) func(*spillwayv1.Acknowledgement) bool {
	return func(a *spillwayv1.Acknowledgement) bool {
		return a.GetRulesetVersion() == version && a.GetTypeUrl() == resources.RouteType && a.GetOutcome() == spillwayv1.Outcome_OUTCOME_ACK
	}
}

// TestARelayAtALeafNodeOutlivesTheHub checks that a relay that knows only its cluster's leaf node
// works fully: it receives rulesets, and its acknowledgements and heartbeats arrive. While the hub
// is away, the relay stays connected and continues to serve. What Envoys answer in the meantime is
// stored later.
func TestARelayAtALeafNodeOutlivesTheHub(t *testing.T) {
	w, data := newLeafWorld(t), t.TempDir()
	hub := w.start("hub", data)
	p, r := harness.NewPublisherAt(t, harness.NATSURL(hub, "anybody", "secret")), w.relay()
	begin := time.Now()
	for version := uint64(1); version <= 4; version++ {
		p.Put(harness.Ruleset(version, time.Hour, 5000, 5000))
		testkit.Eventually(t, "the next version", func() bool { return r.Status().ServedVersion == version })
	}
	// Without notifications of the writes, three of the four would each wait for the regular read
	// every 5 s.
	if took := time.Since(begin); took > 12*time.Second {
		t.Errorf("four versions took %s: rulesets are found, not heard of", took)
	}
	c := harness.NewDelta(t, harness.At(r), harness.Node("gate", "a"))
	harness.Boot(t, c)
	p.Ack(acknowledges(4))
	p.Reports("spillway.heartbeats.north", func([]byte) bool { return true })

	w.stop(hub)
	late := harness.NewDelta(t, harness.At(r), harness.Node("gate", "b"))
	harness.Boot(t, late)
	testkit.Eventually(t, "its answers wait", func() bool { return r.Status().AcksWaiting > 0 })
	if page := r.Status(); page.ServedVersion != 4 || !page.NatsConnected {
		t.Errorf("without the hub: version %d, connected %v", page.ServedVersion, page.NatsConnected)
	}

	p = harness.NewPublisherAt(t, harness.NATSURL(w.start("hub", data), "anybody", "secret"))
	p.Put(harness.Ruleset(5, time.Hour, 2000, 8000))
	harness.Expect(t, c, map[string]uint32{"shop|north": 2000, "shop|south": 8000})
	p.Ack(acknowledges(5))
	p.Ack(func(a *spillwayv1.Acknowledgement) bool {
		return strings.HasSuffix(a.GetEnvoy(), "/b") && acknowledges(4)(a)
	})
	if errs := r.Status().Counters["nats_errors"]; errs != 0 {
		t.Errorf("NATS refused %d things", errs)
	}
}

// TestARelayAtALeafNodeFollowsTheStandby checks that the leaf finds the standby, which starts
// empty, when the hub is lost for good. The relay refuses every version of the standby that is not
// above those of the hub, and takes the first that is.
func TestARelayAtALeafNodeFollowsTheStandby(t *testing.T) {
	w := newLeafWorld(t)
	hub := w.start("hub", t.TempDir())
	p, r := harness.NewPublisherAt(t, harness.NATSURL(hub, "anybody", "secret")), w.relay()
	p.Put(harness.Ruleset(5, time.Hour, 5000, 5000))
	testkit.Eventually(t, "the hub's version", func() bool { return r.Status().ServedVersion == 5 })
	w.stop(hub)
	p = harness.NewPublisherAt(t, harness.NATSURL(w.start("standby", t.TempDir()), "anybody", "secret"))
	p.Put(harness.Ruleset(4, time.Hour, 9000, 1000))
	r.Counted("rulesets_replayed", 1)
	p.Put(harness.Ruleset(6, time.Hour, 2000, 8000))
	testkit.Eventually(t, "the standby's version", func() bool { return r.Status().ServedVersion == 6 })
}

// TestALeafNodeMayNotMoreThanItsClustersRelay checks that, for every user of the leaf, the hub
// accepts and delivers only what the cluster's relay may send and receive.
func TestALeafNodeMayNotMoreThanItsClustersRelay(t *testing.T) {
	w := newLeafWorld(t)
	hub := w.start("hub", t.TempDir())
	above, err := nats.Connect(harness.NATSURL(hub, "anybody", "secret"))
	testkit.Must(t, err)
	t.Cleanup(above.Close)
	below, err := nats.Connect(w.leafURL("anybody", "secret"), nats.RootCAs(w.ca))
	testkit.Must(t, err)
	t.Cleanup(below.Close)
	passes := func(from, to *nats.Conn, last string, before ...string) {
		t.Helper()
		received := make(chan *nats.Msg, 64)
		for _, subject := range append(before, last) {
			subscription, err := to.ChanSubscribe(subject, received)
			testkit.Must(t, err)
			defer subscription.Unsubscribe() //nolint:errcheck // the connection ends with the test
		}
		testkit.Must(t, to.Flush())
		var got *nats.Msg
		testkit.Eventually(t, last+" passes", func() bool {
			for _, subject := range append(before, last) {
				testkit.Must(t, from.Publish(subject, nil))
			}
			select {
			case got = <-received:
				return true
			case <-time.After(100 * time.Millisecond):
				return false
			}
		})
		if got.Subject != last {
			t.Errorf("%s passes", got.Subject)
		}
	}
	passes(below, above, "spillway.heartbeats.north", "spillway.heartbeats.south", "spillway.proposals.optimizer",
		"$KV.spillway_rulesets.north", "$JS.API.STREAM.INFO.KV_spillway_rulesets")
	passes(above, below, "$KV.spillway_rulesets.north", "$KV.spillway_rulesets.south", "spillway.acks.north", "_INBOX_RELAY_south.x")
}
