package testkit

import (
	"net"
	"testing"
)

// Ports that are reserved differ from each other and from those that the kernel hands out, can be
// listened on, and are free again for others when they are released.
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

// What one process holds nobody else gets, until it is let go.
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
