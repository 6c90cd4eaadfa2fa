package testkit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// lowest is the lowest port that is handed out. Ports below it belong to well-known servers.
const lowest = 15_000

// FreePort returns a port of 127.0.0.1 that belongs to the test until it ends. It is meant for
// programs that listen by themselves, and for servers that stop and start again.
func FreePort(t *testing.T) int {
	t.Helper()
	port, release, err := ReservePort()
	Must(t, err)
	t.Cleanup(release)
	return port
}

// FreeAddress returns 127.0.0.1 with a FreePort.
func FreeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.0.0.1:%d", FreePort(t))
}

// ReservePort returns a port on which nobody listens, and which no other process gets from here
// until it is released. It is outside the range that the kernel assigns, because such a port may
// soon belong to another connection once it is closed.
func ReservePort() (port int, release func(), err error) {
	from, to, err := ports()
	if err != nil {
		return 0, nil, err
	}
	folder := filepath.Join(os.TempDir(), fmt.Sprintf("spillway-ports-%d", os.Getuid()))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return 0, nil, err
	}
	for range 1000 {
		port := from + rand.IntN(to-from)
		if release, ok := lock(filepath.Join(folder, strconv.Itoa(port))); ok {
			if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
				return port, release, listener.Close()
			}
			release()
		}
	}
	return 0, nil, fmt.Errorf("no port is free from %d to %d", from, to-1)
}

// lock locks the file for this process. The kernel releases the lock when the process ends at the
// latest. (An os.File would be closed as soon as nothing refers to it.)
func lock(path string) (release func(), ok bool) {
	file, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, false
	}
	release = func() { syscall.Close(file) } // nothing was written
	if err := syscall.Flock(file, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		release()
		return nil, false
	}
	return release, true
}

// ports returns the range [from, to) that the kernel does not assign: the wider of those below and
// above its own range.
func ports() (from, to int, err error) {
	const path = "/proc/sys/net/ipv4/ip_local_port_range"
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return 0, 0, fmt.Errorf("%s: %q; must be two numbers", path, text)
	}
	first, err1 := strconv.Atoi(fields[0])
	last, err2 := strconv.Atoi(fields[1])
	if err := errors.Join(err1, err2); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	from, to = lowest, first
	if above := last + 1; 1<<16-above > to-from {
		from, to = above, 1<<16
	}
	if to <= from {
		return 0, 0, fmt.Errorf("%s: %d to %d leaves no port from %d on to tests", path, first, last, lowest)
	}
	return from, to, nil
}
