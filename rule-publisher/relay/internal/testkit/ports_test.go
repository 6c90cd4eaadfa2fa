package testkit

import (
	"net"
	"testing"
)

// TestReservedPorts checks that reserved ports differ from each other, are outside the kernel's
// range and can be listened on, and that others get them again after they are released.
func TestReservedPorts(t *testing.T) {
	from, to, err := ports()
	Must(t, err)
	seen := map[int]func(){}
	for range 200 {
		port, release, err := ReservePort()
		Must(t, err)
		if _, again := seen[port]; again || port < from || port >= to {
			t.Fatalf("port %d: reserved twice, or not from %d to %d", port, from, to-1)
		}
		seen[port] = release
	}
	listener, err := net.Listen("tcp", FreeAddress(t))
	Must(t, err)
	Must(t, listener.Close())
	for _, release := range seen {
		release()
	}
}

// TestLocks checks that nobody else gets a lock that one process holds, until it is released.
func TestLocks(t *testing.T) {
	path := t.TempDir() + "/1"
	release, ok := lock(path)
	if !ok {
		t.Fatal("a new lock is taken")
	}
	if _, again := lock(path); again {
		t.Error("a lock is given twice")
	}
	release()
	if release, ok = lock(path); !ok {
		t.Fatal("a lock that was let go is still taken")
	}
	release()
}
