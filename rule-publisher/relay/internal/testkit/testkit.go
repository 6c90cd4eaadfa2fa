// Package testkit is what all tests of the relay share: waiting, and real programs beside them.
package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Patience is how long Eventually waits: a busy machine takes its time, and so does a client that asks again ever more seldom.
const Patience = 2 * time.Minute

// Must end the test when there is an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually the condition holds; else the test ends, naming what did not come.
func Eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not in %s: %s", Patience, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Replace a file that a running program reads: it sees the old content or the new, never half of it.
func Replace(t *testing.T, path, content string) {
	t.Helper()
	half := path + ".new"
	Must(t, os.WriteFile(half, []byte(content), 0o600))
	Must(t, os.Rename(half, path))
}

// Start a program that ends with the test; its output is shown when the test fails.
func Start(t *testing.T, program string, arguments ...string) *exec.Cmd {
	t.Helper()
	command := exec.Command(program, arguments...)
	output, err := os.Create(filepath.Join(t.TempDir(), "output"))
	Must(t, err)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	Must(t, command.Start())
	t.Cleanup(func() {
		command.Process.Kill() //nolint:errcheck // it may have ended
		command.Wait()         //nolint:errcheck // killed
		output.Close()
		if t.Failed() {
			log, _ := os.ReadFile(output.Name())
			lines := strings.Split(string(log), "\n")
			t.Logf("%s:\n%s", filepath.Base(program), strings.Join(lines[max(0, len(lines)-60):], "\n"))
		}
	})
	return command
}
