package lifecycle

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"spillway.dev/relay/featuretests/harness"
	"spillway.dev/relay/internal/relay"
	"spillway.dev/relay/internal/serve/resources"
	"spillway.dev/relay/internal/testkit"
)

// TestMain lets the test binary be the relay itself, as a separate process.
func TestMain(m *testing.M) {
	if os.Getenv("SPILLWAY_TEST_AS_RELAY") != "" {
		relay.Main()
		return
	}
	os.Exit(m.Run())
}

func relayProcess(env ...string) (*exec.Cmd, *bytes.Buffer) {
	command := exec.Command(os.Args[0])
	command.Env = append([]string{"SPILLWAY_TEST_AS_RELAY=1"}, env...)
	out := &bytes.Buffer{}
	command.Stderr = out
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command, out
}

// TestWrongConfigurationExits64 checks that a wrong configuration, or a file with an unknown
// cluster, ends the process with code 64 and a message that names the key.
func TestWrongConfigurationExits64(t *testing.T) {
	conf := harness.Config(t, "nats://127.0.0.1:1")
	testkit.Must(t, os.WriteFile(conf.Endpoints, []byte(strings.Replace(harness.Endpoints, "cluster: far", "cluster: mars", 1)), 0o600))
	unknownKey := harness.Config(t, "nats://127.0.0.1:1")
	testkit.Must(t, os.WriteFile(unknownKey.Topology, []byte(harness.Topology+"\nclustres: []\n"), 0o600))
	for want, env := range map[string][]string{
		"SPILLWAY_CLUSTER: not set": nil,
		`endpoints services[0].cluster: unknown cluster "mars"; clusters: far, north, south`: environment(conf),
		`unknown field "clustres"`: environment(unknownKey),
	} {
		command, out := relayProcess(env...)
		var exit *exec.ExitError
		if err := command.Run(); !errors.As(err, &exit) || exit.ExitCode() != relay.ExitUsage {
			t.Errorf("%s: %v, want exit code %d", want, err, relay.ExitUsage)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("missing: %s\nin: %s", want, out)
		}
	}
}

func environment(conf relay.Config) []string {
	return []string{"SPILLWAY_CLUSTER=" + conf.Cluster, "SPILLWAY_RELAY=" + conf.Relay, "SPILLWAY_NATS_URL=" + conf.NATS.URL, "SPILLWAY_XDS_LISTEN=" + conf.XDSListen,
		"SPILLWAY_HEALTH_LISTEN=" + conf.HealthListen, "SPILLWAY_STATE_DIR=" + conf.StateDir,
		"SPILLWAY_XDS_CERT=" + conf.XDS.Cert, "SPILLWAY_XDS_KEY=" + conf.XDS.Key, "SPILLWAY_XDS_CLIENT_CA=" + conf.XDS.ClientCA,
		"SPILLWAY_XDS_IDENTITY=" + string(conf.Identity), "SPILLWAY_RULESET_KEYS=" + conf.RulesetKeys,
		"SPILLWAY_TOPOLOGY=" + conf.Topology, "SPILLWAY_ENDPOINTS=" + conf.Endpoints}
}

// TestSigtermEndsCleanly checks that SIGTERM ends the process with code 0, also with an Envoy
// connected and NATS away. Its logs are JSON and never show the password.
func TestSigtermEndsCleanly(t *testing.T) {
	conf := harness.Config(t, "nats://relay-north:hunter2@127.0.0.1:1")
	conf.XDSListen = testkit.FreeAddress(t)
	command, out := relayProcess(append(environment(conf), "SPILLWAY_RELAY_LOG_LEVEL=debug")...)
	testkit.Must(t, command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	c := harness.NewDelta(t, &harness.Dialer{Address: conf.XDSListen}, harness.Node("gate", "a"))
	c.Subscribe(resources.ClusterType)
	harness.Next(t, c)
	testkit.Must(t, command.Process.Signal(syscall.SIGTERM))
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	case <-time.After(testkit.Patience):
		command.Process.Kill() //nolint:errcheck // it may have ended
		t.Fatal("still there")
	}
	for line := range strings.Lines(out.String()) {
		if !json.Valid([]byte(line)) || strings.Contains(line, "hunter2") {
			t.Errorf("log line %s", line)
		}
	}
	if !strings.Contains(out.String(), `"message":"draining"`) {
		t.Errorf("the end is not logged: %s", out)
	}
}
