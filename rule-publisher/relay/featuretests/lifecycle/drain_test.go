package lifecycle

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/relay"
	"spillway.dev/relay/internal/state"
	"spillway.dev/relay/internal/testkit"
)

// TestDrain checks that a draining relay is alive but not ready. Its streams end one after the
// other with UNAVAILABLE. What Envoys answered until then is stored in NATS before the end.
func TestDrain(t *testing.T) {
	p, r := harness.Start(t)
	p.Put(harness.Ruleset(1, time.Minute, 5000, 5000))
	r.Counted("rulesets_taken", 1)
	const envoys = 30
	var ends []chan time.Time
	for i := range envoys {
		c := harness.NewDelta(t, harness.At(r), harness.Node("gate", fmt.Sprint(i)))
		harness.Boot(t, c)
		end := make(chan time.Time, 1)
		ends = append(ends, end)
		go func() {
			if err := <-c.Failed(); status.Code(err) != codes.Unavailable {
				t.Errorf("a stream ended with %v, want UNAVAILABLE", err)
			}
			end <- time.Now()
		}()
	}
	r.Counted("answers_accepted", envoys) // an answer that is still on its way does not count yet
	stopped := make(chan struct{})
	go func() { r.Stop(); close(stopped) }()
	testkit.Eventually(t, "draining is said", func() bool { return r.Answers("/readyz") == http.StatusServiceUnavailable })
	if code := r.Answers("/livez"); code != 200 {
		t.Errorf("/livez while draining: %d", code)
	}
	<-stopped
	var at []time.Time
	for _, end := range ends {
		at = append(at, <-end)
	}
	slices.SortFunc(at, time.Time.Compare)
	if took := at[envoys-1].Sub(at[0]); took < relay.DrainOver/2 {
		t.Errorf("all %d streams ended within %s, want them spread over %s", envoys, took, relay.DrainOver)
	}
	for i := range envoys {
		p.Ack(func(a *spillwayv1.Acknowledgement) bool { return a.GetEnvoy() == fmt.Sprint("north/gate/", i) })
	}
}

// TestAcknowledgementsOutliveTheRelay checks that answers that NATS could not store until the
// relay's end are on disk, and that the next start stores them.
func TestAcknowledgementsOutliveTheRelay(t *testing.T) {
	folder := t.TempDir()
	port := testkit.FreePort(t)
	server := harness.StartNATS(t, folder, port)
	harness.NewPublisher(t, server)
	conf := harness.Config(t, server.ClientURL())
	server.Shutdown()
	server.WaitForShutdown()
	first := harness.StartRelay(t, conf)
	harness.Boot(t, harness.NewDelta(t, harness.At(first), harness.Node("gate", "early")))
	testkit.Eventually(t, "the answer waits", func() bool { return first.Status().AcksWaiting == 1 })
	first.Stop()
	second := harness.StartRelay(t, conf)
	if waiting := second.Status().AcksWaiting; waiting != 1 {
		t.Fatalf("%d acknowledgements after the restart, want 1", waiting)
	}
	p := harness.NewPublisher(t, harness.StartNATS(t, folder, port))
	p.Ack(func(a *spillwayv1.Acknowledgement) bool { return a.GetEnvoy() == "north/gate/early" })
	testkit.Eventually(t, "what NATS has stored is forgotten on disk", func() bool {
		_, err := os.Stat(filepath.Join(conf.StateDir, "acknowledgements.state"))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// TestWaitingAcknowledgementsOutliveAKill checks that answers that have waited for NATS for a while
// survive a kill of the relay. When the next relay has stored them, it removes them from disk.
func TestWaitingAcknowledgementsOutliveAKill(t *testing.T) {
	t.Parallel()
	folder, port := t.TempDir(), testkit.FreePort(t)
	conf := harness.Config(t, fmt.Sprintf("nats://127.0.0.1:%d", port))
	conf.XDSListen = testkit.FreeAddress(t)
	command, out := relayProcess(environment(conf)...)
	testkit.Must(t, command.Start())
	t.Cleanup(func() { command.Process.Kill() }) //nolint:errcheck // it may have ended
	harness.Boot(t, harness.NewDelta(t, &harness.Dialer{Address: conf.XDSListen}, harness.Node("gate", "early")))
	file := filepath.Join(conf.StateDir, "acknowledgements.state")
	testkit.Eventually(t, "the answer that waits is on disk", func() bool { _, err := os.Stat(file); return err == nil })
	testkit.Must(t, command.Process.Kill())
	command.Wait() //nolint:errcheck // killed
	if strings.Contains(out.String(), "draining") {
		t.Error("the relay had an end")
	}
	p := harness.NewPublisher(t, harness.StartNATS(t, folder, port))
	conf.XDSListen = "127.0.0.1:0"
	harness.StartRelay(t, conf)
	p.Ack(func(a *spillwayv1.Acknowledgement) bool { return a.GetEnvoy() == "north/gate/early" })
	testkit.Eventually(t, "what NATS has stored is forgotten on disk", func() bool { _, err := os.Stat(file); return errors.Is(err, fs.ErrNotExist) })
}

// TestStoredAcknowledgementsAreForgotten checks that a relay removes acknowledgements from disk
// once NATS is back and has stored them.
func TestStoredAcknowledgementsAreForgotten(t *testing.T) {
	t.Parallel()
	folder, port := t.TempDir(), testkit.FreePort(t)
	conf := harness.Config(t, fmt.Sprintf("nats://127.0.0.1:%d", port))
	r := harness.StartRelay(t, conf)
	harness.Boot(t, harness.NewDelta(t, harness.At(r), harness.Node("gate", "early")))
	file := filepath.Join(conf.StateDir, "acknowledgements.state")
	testkit.Eventually(t, "the answer that waits is on disk", func() bool { _, err := os.Stat(file); return err == nil })
	p := harness.NewPublisher(t, harness.StartNATS(t, folder, port))
	p.Ack(func(a *spillwayv1.Acknowledgement) bool { return a.GetEnvoy() == "north/gate/early" })
	testkit.Eventually(t, "what NATS has stored is forgotten on disk", func() bool { _, err := os.Stat(file); return errors.Is(err, fs.ErrNotExist) })
}

// TestReadiness checks that a relay is ready at once with a ruleset from disk, or when NATS has
// answered, even if it answered that there is no ruleset. Without either, it becomes ready after a
// while, local-first.
func TestReadiness(t *testing.T) {
	t.Run("without NATS", func(t *testing.T) {
		t.Parallel()
		r := harness.StartRelay(t, harness.Config(t, "nats://127.0.0.1:1"))
		if code := r.Answers("/readyz"); code != http.StatusServiceUnavailable {
			t.Errorf("at once: %d", code)
		}
		harness.Boot(t, harness.NewDelta(t, harness.At(r), harness.Node("gate", "a"))) // is served all the same
		testkit.Eventually(t, "ready, local-first", func() bool { return r.Answers("/readyz") == 200 })
	})
	t.Run("empty bucket, then disk", func(t *testing.T) {
		t.Parallel()
		server := harness.StartNATS(t, t.TempDir(), 0)
		p := harness.NewPublisher(t, server)
		conf := harness.Config(t, server.ClientURL())
		r := harness.StartRelay(t, conf)
		testkit.Eventually(t, "NATS said that there is no ruleset", r.Answered)
		if code := r.Answers("/readyz"); code != 200 {
			t.Errorf("after the word of NATS: %d", code)
		}
		p.Put(harness.Ruleset(1, time.Minute, 5000, 5000))
		r.Counted("rulesets_taken", 1)
		harness.Kept(t, conf)
		r.Stop()
		server.Shutdown()
		if code := harness.StartRelay(t, conf).Answers("/readyz"); code != 200 {
			t.Errorf("with a ruleset from disk: %d", code)
		}
	})
}

// TestARefusedRelayIsNotReady checks a relay that NATS refuses, because of its password or of a
// right that it lacks. It is not ready before a rollout would have ended. It serves local-first in
// the meantime, and is ready as soon as NATS admits it.
func TestARefusedRelayIsNotReady(t *testing.T) {
	outsider := harness.RelayUser("north")
	outsider.Permissions.Publish.Allow, outsider.Permissions.Subscribe.Allow = []string{"none"}, []string{"none"}
	for _, test := range []struct{ name, password, says string }{
		{"another password", "wrong", "Authorization Violation"},
		{"no rights", outsider.Password, "Permissions Violation"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			folder, port := t.TempDir(), testkit.FreePort(t)
			server := harness.StartNATSWith(t, &natsserver.Options{StoreDir: folder, Port: port,
				Users: []*natsserver.User{outsider, {Username: "publisher", Password: "secret"}}})
			harness.NewPublisherAt(t, harness.NATSURL(server, "publisher", "secret")).Put(harness.Ruleset(1, time.Minute, 5000, 5000))
			r := harness.StartRelay(t, harness.Config(t, harness.NATSURL(server, outsider.Username, test.password)))
			harness.Boot(t, harness.NewDelta(t, harness.At(r), harness.Node("gate", "a")))
			testkit.Eventually(t, "the refusal is known", func() bool { return r.Status().NatsRefusal != "" })
			late := r.Started().Add(relay.ColdStart + time.Minute)
			if reason := r.NotReady(late); !strings.Contains(strings.ToLower(reason), strings.ToLower(test.says)) {
				t.Errorf("after a minute: %q, want %q", reason, test.says)
			}
			if reason := r.NotReady(r.Started().Add(relay.RefusedStart + time.Second)); reason != "" {
				t.Errorf("after a rollout would have ended: %q", reason)
			}
			server.Shutdown()
			server.WaitForShutdown()
			testkit.Eventually(t, "a server that is away refuses nobody", func() bool { return r.Status().NatsRefusal == "" })
			harness.StartNATSWith(t, &natsserver.Options{StoreDir: folder, Port: port, Users: []*natsserver.User{
				{Username: outsider.Username, Password: test.password}}})
			testkit.Eventually(t, "let in, it has the ruleset", func() bool { return r.Status().ServedVersion == 1 })
			if reason := r.NotReady(late); reason != "" || r.Status().NatsRefusal != "" {
				t.Errorf("let in: not ready for %q, refused for %q", reason, r.Status().NatsRefusal)
			}
		})
	}
}

// TestReadinessWithAnExpiredRuleset checks that a relay with an expired ruleset on disk waits for
// NATS like a relay without any. An expired ruleset does not show what is in force now.
func TestReadinessWithAnExpiredRuleset(t *testing.T) {
	conf := harness.Config(t, "nats://127.0.0.1:1")
	for name, lasting := range map[string]time.Duration{"good": time.Minute, "expired": -time.Minute} {
		store, err := state.Open(conf.StateDir, conf.Cluster)
		testkit.Must(t, err)
		payload, err := proto.Marshal(harness.Ruleset(1, lasting, 5000, 5000))
		testkit.Must(t, err)
		testkit.Must(t, store.Save(harness.PublisherKey.Sign(conf.Cluster, payload)))
		r := harness.StartRelay(t, conf)
		if reason := r.NotReady(r.Started()); (reason == "") != (lasting > 0) {
			t.Errorf("with a %s ruleset from disk, at the start: %q", name, reason)
		}
		if reason := r.NotReady(r.Started().Add(relay.ColdStart + time.Second)); reason != "" {
			t.Errorf("with a %s ruleset from disk, after a while: %q", name, reason)
		}
		r.Stop()
	}
}

// TestAnExpiredRulesetIsHeldAndThenReleased checks a ruleset that expires without a successor. Its
// weights stay at first, and the expiry is counted once. Then it gives way to local-first.
func TestAnExpiredRulesetIsHeldAndThenReleased(t *testing.T) {
	conf := harness.Config(t, "nats://127.0.0.1:1")
	conf.Hold = 6 * time.Second
	store, err := state.Open(conf.StateDir, conf.Cluster)
	testkit.Must(t, err)
	payload, err := proto.Marshal(harness.Ruleset(1, time.Second, 5000, 5000))
	testkit.Must(t, err)
	testkit.Must(t, store.Save(harness.PublisherKey.Sign(conf.Cluster, payload)))
	r := harness.StartRelay(t, conf)
	r.Counted("rulesets_expired", 1)
	if page := r.Status(); page.ServedVersion != 1 || !page.ExpiresAt.Before(time.Now()) {
		t.Errorf("after its expiry version %d is served, want 1", page.ServedVersion)
	}
	testkit.Eventually(t, "local-first", func() bool { return r.Status().ServedVersion == 0 })
	if page := r.Status(); time.Now().Before(page.ExpiresAt.Add(conf.Hold)) {
		t.Error("it was held for less than the setting says")
	}
	r.Counted("rulesets_expired", 1)
}
