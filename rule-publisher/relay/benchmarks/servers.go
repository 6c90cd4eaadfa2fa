package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/identity"
	"spillway.dev/relay/internal/identity/identitytest"
	"spillway.dev/relay/internal/signing/signingtest"
	"spillway.dev/relay/internal/testkit"
)

// process is a server process, whose log is in the folder.
type process struct {
	name    string
	command *exec.Cmd
	log     string
}

func start(folder, name, program string, env []string, arguments ...string) (*process, error) {
	path := filepath.Join(folder, name+".log")
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	command := exec.Command(program, arguments...)
	command.Env = append(os.Environ(), env...)
	command.Stdout, command.Stderr = file, file
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &process{name, command, path}, nil
}

func (p *process) stop() {
	p.command.Process.Signal(syscall.SIGTERM) //nolint:errcheck // it may have ended
	p.command.Wait()                          //nolint:errcheck // its end is all we want
}

// failure adds the end of the process's log (2000 bytes) to the error.
func (p *process) failure(err error) error {
	log, _ := os.ReadFile(p.log)
	return fmt.Errorf("%s: %w; its log ends:\n%s", p.name, err, log[max(0, len(log)-2000):])
}

// cpu returns the user and system time used so far.
func (p *process) cpu() time.Duration {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:])) // from field 3 on
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * (time.Second / 100) // USER_HZ
}

// memory returns the value of a key of /proc/<pid>/status in MB (10^6 bytes): VmRSS, or VmHWM for
// the peak.
func (p *process) memory(key string) float64 {
	content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == key+":" {
			kib, _ := strconv.ParseFloat(fields[1], 64)
			return kib * 1024 / 1e6
		}
	}
	return 0
}

// freeAddress returns an address that belongs to the benchmark until it ends.
func freeAddress() (string, error) {
	port, _, err := testkit.ReservePort()
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

// eventually polls until the condition holds.
func eventually(ctx context.Context, what string, condition func() error) error {
	for {
		err := condition()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func startNATS(ctx context.Context, folder string) (*process, *nats.Conn, string, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, nil, "", err
	}
	_, port, _ := net.SplitHostPort(address)
	server, err := start(folder, "nats", "nats-server", nil, "-js", "-sd", filepath.Join(folder, "jetstream"), "-a", "127.0.0.1", "-p", port)
	if err != nil {
		return nil, nil, "", err
	}
	url := "nats://" + address
	var conn *nats.Conn
	err = eventually(ctx, "NATS", func() (err error) { conn, err = nats.Connect(url); return err })
	if err != nil {
		return nil, nil, "", server.failure(err)
	}
	return server, conn, url, nil
}

// makeStreams creates the bucket and the stream as the publisher does.
func makeStreams(ctx context.Context, conn *nats.Conn) (jetstream.JetStream, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		return nil, err
	}
	_, err = js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: names.NatsBucketRulesets, History: 64})
	_, err2 := js.CreateStream(ctx, jetstream.StreamConfig{Name: names.NatsStreamReports,
		Subjects: []string{names.NatsSubjectAcksAll, names.NatsSubjectHeartbeatsAll}})
	return js, errors.Join(err, err2)
}

// startRelay starts a relay with the mesh's files, and returns when /livez answers.
func startRelay(ctx context.Context, program, folder, natsURL string, files identity.Files, key *signingtest.Key, m mesh, pods int) (relay *process, xds string, err error) {
	xds, err1 := freeAddress()
	health, err2 := freeAddress()
	topology, endpoints := filepath.Join(folder, "topology.yaml"), filepath.Join(folder, "endpoints.yaml")
	err3 := os.WriteFile(topology, []byte(m.topology()), 0o600)
	err4 := os.WriteFile(endpoints, []byte(m.endpoints(pods)), 0o600)
	keys := filepath.Join(folder, "keys.pem")
	err5 := os.WriteFile(keys, key.PEM, 0o600)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return nil, "", err
	}
	relay, err = start(folder, "relay", program, []string{"SPILLWAY_CLUSTER=" + m.home(), "SPILLWAY_RELAY=relay-0", "SPILLWAY_NATS_URL=" + natsURL,
		"SPILLWAY_XDS_CERT=" + files.Cert, "SPILLWAY_XDS_KEY=" + files.Key, "SPILLWAY_XDS_CLIENT_CA=" + files.ClientCA,
		"SPILLWAY_XDS_IDENTITY=" + string(identitytest.Identity), "SPILLWAY_RULESET_KEYS=" + keys,
		"SPILLWAY_XDS_LISTEN=" + xds, "SPILLWAY_HEALTH_LISTEN=" + health, "SPILLWAY_STATE_DIR=" + filepath.Join(folder, "state"),
		"SPILLWAY_TOPOLOGY=" + topology, "SPILLWAY_ENDPOINTS=" + endpoints})
	if err != nil {
		return nil, "", err
	}
	err = eventually(ctx, "the relay", func() error {
		response, err := http.Get("http://" + health + "/livez")
		if err == nil {
			response.Body.Close()
		}
		return err
	})
	if err != nil {
		return nil, "", relay.failure(err)
	}
	return relay, xds, nil
}
