package featuretests

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
	"spillway.dev/relay/internal/relay"
	"spillway.dev/relay/internal/state"
	"spillway.dev/relay/internal/testkit"
)

// TestDrain checks that a draining relay is alive but not ready. Its streams end one after the
// other with UNAVAILABLE. What Envoys answered until then is stored in NATS before the end.
func TestDrain(t *testing.T) {
	server := startNATS(t, t.TempDir(), 0)
	p := newPublisher(t, server)
	r := startRelay(t, testConfig(t, server.ClientURL()))
	p.put(ruleset(1, time.Minute, 5000, 5000))
	r.counted("rulesets_taken", 1)
	const envoys = 30
	var ends []chan time.Time
	for i := range envoys {
		c := newDelta(t, at(r), node("gate", fmt.Sprint(i)))
		boot(t, c)
		end := make(chan time.Time, 1)
		ends = append(ends, end)
		go func() {
			if err := <-c.failed(); status.Code(err) != codes.Unavailable {
				t.Errorf("a stream ended with %v, want UNAVAILABLE", err)
			}
			end <- time.Now()
		}()
	}
	r.counted("answers_accepted", envoys) // an answer that is still on its way does not count yet
	stopped := make(chan struct{})
	go func() { r.stop(); close(stopped) }()
	eventually(t, "draining is said", func() bool { return r.answers("/readyz") == http.StatusServiceUnavailable })
	if code := r.answers("/livez"); code != 200 {
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
		p.ack(func(a *spillwayv1.Acknowledgement) bool { return a.GetEnvoy() == fmt.Sprint("north/gate/", i) })
	}
}

// TestAcknowledgementsOutliveTheRelay checks that answers that NATS could not store until the
// relay's end are on disk, and that the next start stores them.
func TestAcknowledgementsOutliveTheRelay(t *testing.T) {
	folder := t.TempDir()
	port := testkit.FreePort(t)
	server := startNATS(t, folder, port)
	newPublisher(t, server)
	conf := testConfig(t, server.ClientURL())
	server.Shutdown()
	server.WaitForShutdown()
	first := startRelay(t, conf)
	boot(t, newDelta(t, at(first), node("gate", "early")))
	eventually(t, "the answer waits", func() bool { return first.status().AcksWaiting == 1 })
	first.stop()
	second := startRelay(t, conf)
	if waiting := second.status().AcksWaiting; waiting != 1 {
		t.Fatalf("%d acknowledgements after the restart, want 1", waiting)
	}
	p := newPublisher(t, startNATS(t, folder, port))
	p.ack(func(a *spillwayv1.Acknowledgement) bool { return a.GetEnvoy() == "north/gate/early" })
	eventually(t, "what NATS has stored is forgotten on disk", func() bool {
		_, err := os.Stat(filepath.Join(conf.StateDir, "acknowledgements.state"))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// TestWaitingAcknowledgementsOutliveAKill checks that answers that have waited for NATS for a while
// survive a kill of the relay. When the next relay has stored them, it removes them from disk.
func TestWaitingAcknowledgementsOutliveAKill(t *testing.T) {
	t.Parallel()
	folder, port := t.TempDir(), testkit.FreePort(t)
	conf := testConfig(t, fmt.Sprintf("nats://127.0.0.1:%d", port))
	conf.XDSListen = testkit.FreeAddress(t)
	command, out := relayProcess(environment(conf)...)
	must(t, command.Start())
	t.Cleanup(func() { command.Process.Kill() }) //nolint:errcheck // it may have ended
	boot(t, newDelta(t, &dialer{address: conf.XDSListen}, node("gate", "early")))
	file := filepath.Join(conf.StateDir, "acknowledgements.state")
	eventually(t, "the answer that waits is on disk", func() bool { _, err := os.Stat(file); return err == nil })
	must(t, command.Process.Kill())
	command.Wait() //nolint:errcheck // killed
	if strings.Contains(out.String(), "draining") {
		t.Error("the relay had an end")
	}
	p := newPublisher(t, startNATS(t, folder, port))
	conf.XDSListen = "127.0.0.1:0"
	startRelay(t, conf)
	p.ack(func(a *spillwayv1.Acknowledgement) bool { return a.GetEnvoy() == "north/gate/early" })
	eventually(t, "what NATS has stored is forgotten on disk", func() bool { _, err := os.Stat(file); return errors.Is(err, fs.ErrNotExist) })
}

// TestStoredAcknowledgementsAreForgotten checks that a relay removes acknowledgements from disk
// once NATS is back and has stored them.
func TestStoredAcknowledgementsAreForgotten(t *testing.T) {
	t.Parallel()
	folder, port := t.TempDir(), testkit.FreePort(t)
	conf := testConfig(t, fmt.Sprintf("nats://127.0.0.1:%d", port))
	r := startRelay(t, conf)
	boot(t, newDelta(t, at(r), node("gate", "early")))
	file := filepath.Join(conf.StateDir, "acknowledgements.state")
	eventually(t, "the answer that waits is on disk", func() bool { _, err := os.Stat(file); return err == nil })
	p := newPublisher(t, startNATS(t, folder, port))
	p.ack(func(a *spillwayv1.Acknowledgement) bool { return a.GetEnvoy() == "north/gate/early" })
	eventually(t, "what NATS has stored is forgotten on disk", func() bool { _, err := os.Stat(file); return errors.Is(err, fs.ErrNotExist) })
}

// TestReadiness checks that a relay is ready at once with a ruleset from disk, or when NATS has
// answered, even if it answered that there is no ruleset. Without either, it becomes ready after a
// while, local-first.
func TestReadiness(t *testing.T) {
	t.Run("without NATS", func(t *testing.T) {
		t.Parallel()
		r := startRelay(t, testConfig(t, "nats://127.0.0.1:1"))
		if code := r.answers("/readyz"); code != http.StatusServiceUnavailable {
			t.Errorf("at once: %d", code)
		}
		boot(t, newDelta(t, at(r), node("gate", "a"))) // is served all the same
		eventually(t, "ready, local-first", func() bool { return r.answers("/readyz") == 200 })
	})
	t.Run("empty bucket, then disk", func(t *testing.T) {
		t.Parallel()
		server := startNATS(t, t.TempDir(), 0)
		p := newPublisher(t, server)
		conf := testConfig(t, server.ClientURL())
		r := startRelay(t, conf)
		eventually(t, "NATS said that there is no ruleset", r.Answered)
		if code := r.answers("/readyz"); code != 200 {
			t.Errorf("after the word of NATS: %d", code)
		}
		p.put(ruleset(1, time.Minute, 5000, 5000))
		r.counted("rulesets_taken", 1)
		kept(t, conf)
		r.stop()
		server.Shutdown()
		if code := startRelay(t, conf).answers("/readyz"); code != 200 {
			t.Errorf("with a ruleset from disk: %d", code)
		}
	})
}

// TestARefusedRelayIsNotReady checks a relay that NATS refuses, because of its password or of a
// right that it lacks. It is not ready before a rollout would have ended. It serves local-first in
// the meantime, and is ready as soon as NATS admits it.
func TestARefusedRelayIsNotReady(t *testing.T) {
	outsider := relayUser("north")
	outsider.Permissions.Publish.Allow, outsider.Permissions.Subscribe.Allow = []string{"none"}, []string{"none"}
	for _, test := range []struct{ name, password, says string }{
		{"another password", "wrong", "Authorization Violation"},
		{"no rights", outsider.Password, "Permissions Violation"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			folder, port := t.TempDir(), testkit.FreePort(t)
			server := startNATSWith(t, &natsserver.Options{StoreDir: folder, Port: port,
				Users: []*natsserver.User{outsider, {Username: "publisher", Password: "secret"}}})
			newPublisherAt(t, natsURL(server, "publisher", "secret")).put(ruleset(1, time.Minute, 5000, 5000))
			r := startRelay(t, testConfig(t, natsURL(server, outsider.Username, test.password)))
			boot(t, newDelta(t, at(r), node("gate", "a")))
			eventually(t, "the refusal is known", func() bool { return r.status().NatsRefusal != "" })
			late := r.Started().Add(relay.ColdStart + time.Minute)
			if reason := r.NotReady(late); !strings.Contains(strings.ToLower(reason), strings.ToLower(test.says)) {
				t.Errorf("after a minute: %q, want %q", reason, test.says)
			}
			if reason := r.NotReady(r.Started().Add(relay.RefusedStart + time.Second)); reason != "" {
				t.Errorf("after a rollout would have ended: %q", reason)
			}
			server.Shutdown()
			server.WaitForShutdown()
			eventually(t, "a server that is away refuses nobody", func() bool { return r.status().NatsRefusal == "" })
			startNATSWith(t, &natsserver.Options{StoreDir: folder, Port: port, Users: []*natsserver.User{
				{Username: outsider.Username, Password: test.password}}})
			eventually(t, "let in, it has the ruleset", func() bool { return r.status().ServedVersion == 1 })
			if reason := r.NotReady(late); reason != "" || r.status().NatsRefusal != "" {
				t.Errorf("let in: not ready for %q, refused for %q", reason, r.status().NatsRefusal)
			}
		})
	}
}

// TestReadinessWithAnExpiredRuleset checks that a relay with an expired ruleset on disk waits for
// NATS like a relay without any. An expired ruleset does not show what is in force now.
func TestReadinessWithAnExpiredRuleset(t *testing.T) {
	conf := testConfig(t, "nats://127.0.0.1:1")
	for name, lasting := range map[string]time.Duration{"good": time.Minute, "expired": -time.Minute} {
		store, err := state.Open(conf.StateDir, conf.Cluster)
		must(t, err)
		payload, err := proto.Marshal(ruleset(1, lasting, 5000, 5000))
		must(t, err)
		must(t, store.Save(publisherKey.Sign(conf.Cluster, payload)))
		r := startRelay(t, conf)
		if reason := r.NotReady(r.Started()); (reason == "") != (lasting > 0) {
			t.Errorf("with a %s ruleset from disk, at the start: %q", name, reason)
		}
		if reason := r.NotReady(r.Started().Add(relay.ColdStart + time.Second)); reason != "" {
			t.Errorf("with a %s ruleset from disk, after a while: %q", name, reason)
		}
		r.stop()
	}
}

// answers returns the status of a GET on the health listener, or 0 when nobody answers.
func (r *running) answers(path string) int {
	response, err := http.Get("http://" + r.HealthAddr() + path)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}

// TestAnExpiredRulesetIsHeldAndThenReleased checks a ruleset that expires without a successor. Its
// weights stay at first, and the expiry is counted once. Then it gives way to local-first.
func TestAnExpiredRulesetIsHeldAndThenReleased(t *testing.T) {
	conf := testConfig(t, "nats://127.0.0.1:1")
	conf.Hold = 6 * time.Second
	store, err := state.Open(conf.StateDir, conf.Cluster)
	must(t, err)
	payload, err := proto.Marshal(ruleset(1, time.Second, 5000, 5000))
	must(t, err)
	must(t, store.Save(publisherKey.Sign(conf.Cluster, payload)))
	r := startRelay(t, conf)
	r.counted("rulesets_expired", 1)
	if page := r.status(); page.ServedVersion != 1 || !page.ExpiresAt.Before(time.Now()) {
		t.Errorf("after its expiry version %d is served, want 1", page.ServedVersion)
	}
	eventually(t, "local-first", func() bool { return r.status().ServedVersion == 0 })
	if page := r.status(); time.Now().Before(page.ExpiresAt.Add(conf.Hold)) {
		t.Error("it was held for less than the setting says")
	}
	r.counted("rulesets_expired", 1)
}
