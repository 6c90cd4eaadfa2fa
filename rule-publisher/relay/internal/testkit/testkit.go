// Package testkit is shared by all tests of the relay: it waits for conditions and runs real
// programs beside them.
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

// Patience is how long Eventually waits. It is long because machines may be busy, and clients retry
// at growing intervals.
const Patience = 2 * time.Minute

// Must ends the test when there is an error.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until the condition holds. After Patience it ends the test, with `what` in the
// message.
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

// Replace replaces a file that a running program reads. The program sees the old content or the
// new, never a part.
func Replace(t *testing.T, path, content string) {
	t.Helper()
	half := path + ".new"
	Must(t, os.WriteFile(half, []byte(content), 0o600))
	Must(t, os.Rename(half, path))
}

// Start starts a program that is killed when the test ends. Its output is shown when the test
// fails.
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
