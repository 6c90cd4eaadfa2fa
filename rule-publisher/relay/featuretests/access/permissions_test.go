package access

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"spillway.dev/contracts/names"
	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/testkit"
)

// startGuardedNATS runs NATS with the users of two relays, and the publisher, who may do
// everything.
func startGuardedNATS(t *testing.T) (server *natsserver.Server, admin string) {
	t.Helper()
	server = harness.StartNATSWith(t, &natsserver.Options{StoreDir: t.TempDir(), Port: natsserver.RANDOM_PORT, Users: []*natsserver.User{
		harness.RelayUser("north"), harness.RelayUser("south"), {Username: "publisher", Password: "secret"}}})
	return server, harness.NATSURL(server, "publisher", "secret")
}

// TestRelayWorksWithItsOwnPermissions checks that a relay works fully with its own few permissions.
// It takes the present ruleset and is notified of the next one, and its acknowledgements and
// heartbeats arrive. The server refuses none of its requests.
func TestRelayWorksWithItsOwnPermissions(t *testing.T) {
	server, admin := startGuardedNATS(t)
	p := harness.NewPublisherAt(t, admin)
	p.Put(harness.Ruleset(1, time.Minute, 5000, 5000))
	conf := harness.Config(t, harness.NATSURL(server, "relay-north", "of-north"))
	r := harness.StartRelay(t, conf)
	c := harness.NewDelta(t, harness.At(r), harness.Node("gate", "a"))
	testkit.Eventually(t, "version 1 is served", func() bool { return r.Status().ServedVersion == 1 })
	harness.Boot(t, c)
	p.Put(harness.Ruleset(2, time.Minute, 4000, 6000))
	harness.Expect(t, c, map[string]uint32{"shop|north": 4000, "shop|south": 6000})
	p.Ack(func(a *spillwayv1.Acknowledgement) bool {
		return a.GetRulesetVersion() == 2 && a.GetTypeUrl() == resources.RouteType && a.GetOutcome() == spillwayv1.Outcome_OUTCOME_ACK
	})
	p.Reports("spillway.heartbeats.north", func([]byte) bool { return true })
	if errs := r.Status().Counters["nats_errors"]; errs != 0 {
		t.Errorf("NATS refused %d things", errs)
	}
}

// TestRelayMayNothingElse checks that the server refuses everything else to a relay's credentials:
// other clusters' keys and inboxes, every write, every consumer, every other subject.
func TestRelayMayNothingElse(t *testing.T) {
	server, admin := startGuardedNATS(t)
	p := harness.NewPublisherAt(t, admin)
	p.Put(harness.Ruleset(1, time.Minute, 10000))
	_, err := p.Bucket.Put(t.Context(), "south", []byte("of south"))
	testkit.Must(t, err)
	south := dialNATS(t, harness.NATSURL(server, "relay-south", "of-south"))
	stream, consumers := "KV_"+names.NatsBucketRulesets, "$JS.API.CONSUMER."
	get := "$JS.API.DIRECT.GET." + stream
	for _, denied := range []struct{ subject, body string }{
		{get + ".$KV.spillway_rulesets.north", ""},
		{get + ".$KV.spillway_rulesets.>", ""},
		{get, `{"last_by_subj":"$KV.spillway_rulesets.north"}`},
		{get, `{"multi_last":["$KV.spillway_rulesets.>"]}`},
		{"$JS.API.STREAM.MSG.GET." + stream, `{"last_by_subj":"$KV.spillway_rulesets.north"}`},
		{"$JS.API.STREAM.INFO." + stream, ""},
		{"$JS.API.STREAM.PURGE." + stream, ""},
		{"$JS.API.STREAM.MSG.DELETE." + stream, `{"seq":1}`},
		{"$JS.API.STREAM.NAMES", ""},
		{"$JS.API.INFO", ""},
		{consumers + "CREATE." + stream + ".mine.$KV.spillway_rulesets.south", `{}`},
		{consumers + "CREATE." + stream, `{}`},
		{consumers + "NAMES." + stream, ""},
		{consumers + "INFO." + stream + ".relay-north", ""},
		{consumers + "MSG.NEXT." + stream + ".relay-north", ""},
		{consumers + "DELETE." + stream + ".relay-north", ""},
		{"$KV.spillway_rulesets.south", "x"},
		{"$KV.spillway_rulesets.north", "x"},
		{"spillway.acks.north", "x"},
		{"spillway.heartbeats.north", "x"},
		{"spillway.proposals.optimizer", "x"},
		{"_INBOX_RELAY_north.x", "x"},
	} {
		if why := south.publishRefused(denied.subject, denied.body); !strings.Contains(why, "Permissions Violation for Publish to") {
			t.Errorf("publishing to %s: %q, want a refusal", denied.subject, why)
		}
	}
	for _, denied := range []string{"$KV.spillway_rulesets.north", "$KV.>", ">", "_INBOX.>", "_INBOX_RELAY_north.>", "*.>",
		"spillway.acks.south", "spillway.acks.north", "$JS.>", "$SYS.>"} {
		if why := south.subscribeRefused(denied); !strings.Contains(why, "Permissions Violation for Subscription to") {
			t.Errorf("listening to %s: %q, want a refusal", denied, why)
		}
	}
	// The content of the one permitted request cannot make it return other keys.
	subject := get + ".$KV.spillway_rulesets.south"
	for _, body := range []string{"", `{"last_by_subj":"$KV.spillway_rulesets.north"}`, `{"multi_last":["$KV.spillway_rulesets.>"]}`,
		`{"seq":1}`, `{"next_by_subj":"$KV.spillway_rulesets.north"}`} {
		answer, err := south.conn.Request(subject, []byte(body), testkit.Patience)
		testkit.Must(t, err)
		if body == "" && string(answer.Data) != "of south" || body != "" && answer.Header.Get("Status") != "408" {
			t.Errorf("%s %s: %q %v", subject, body, answer.Data, answer.Header)
		}
	}
}

// TestRelayWithoutItsPermissions checks a relay with a user that may not read the key. It serves
// local-first, reports the reason, and still becomes ready.
func TestRelayWithoutItsPermissions(t *testing.T) {
	server, admin := startGuardedNATS(t)
	p := harness.NewPublisherAt(t, admin)
	p.Put(harness.Ruleset(1, time.Minute, 5000, 5000))
	r := harness.StartRelay(t, harness.Config(t, harness.NATSURL(server, "relay-south", "of-south")))
	testkit.Eventually(t, "the refusal is counted", func() bool { return r.Status().Counters["nats_errors"] > 0 })
	harness.Boot(t, harness.NewDelta(t, harness.At(r), harness.Node("gate", "a")))
	if status := r.Status(); status.ServedVersion != 0 || !status.NatsConnected {
		t.Errorf("status %+v", status)
	}
}

// natsClient is a connection that can wait for the server's refusals.
type natsClient struct {
	t       *testing.T
	conn    *nats.Conn
	refusal atomic.Pointer[string]
}

func dialNATS(t *testing.T, url string) *natsClient {
	t.Helper()
	c := &natsClient{t: t}
	conn, err := nats.Connect(url, nats.CustomInboxPrefix("_INBOX_RELAY_south"),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			text := err.Error()
			c.refusal.Store(&text)
		}))
	testkit.Must(t, err)
	t.Cleanup(conn.Close)
	c.conn = conn
	return c
}

func (c *natsClient) publishRefused(subject, body string) string {
	testkit.Must(c.t, c.conn.PublishRequest(subject, "_INBOX_RELAY_south.reply", []byte(body)))
	return c.settle()
}

func (c *natsClient) subscribeRefused(subject string) string {
	subscription, err := c.conn.SubscribeSync(subject)
	testkit.Must(c.t, err)
	defer subscription.Unsubscribe() //nolint:errcheck // the server has refused it
	return c.settle()
}

// settle waits until the server has handled everything sent, and returns its refusal, if any.
func (c *natsClient) settle() string {
	c.t.Helper()
	if err := c.conn.Flush(); err != nil && !errors.Is(err, nats.ErrPermissionViolation) {
		c.t.Fatal(err)
	}
	deadline := time.Now().Add(testkit.Patience)
	for time.Now().Before(deadline) {
		if text := c.refusal.Swap(nil); text != nil {
			return *text
		}
		time.Sleep(time.Millisecond)
	}
	return ""
}
