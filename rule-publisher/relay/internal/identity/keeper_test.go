package identity_test

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"spillway.dev/relay/internal/identity"
	"spillway.dev/relay/internal/identity/identitytest"
)

// TestUnusableFilesAreRefused checks that NewKeeper refuses files that cannot work, with an error
// that names the file.
func TestUnusableFilesAreRefused(t *testing.T) {
	authority := identitytest.NewAuthority()
	good := authority.Relay("north")
	for want, change := range map[string]func(identity.Files){
		"relay.crt: no such file": func(f identity.Files) { os.Remove(f.Cert) },
		"relay.key: no such file": func(f identity.Files) { os.Remove(f.Key) },
		"ca.crt: no such file":    func(f identity.Files) { os.Remove(f.ClientCA) },
		"relay.key: tls: private key does not match": func(f identity.Files) {
			write(t, f.Key, authority.Relay("north").Key)
		},
		"relay.crt: expired at": func(f identity.Files) {
			pair := authority.Issue(identitytest.RelayURI("north"), -time.Minute)
			write(t, f.Cert, pair.Cert)
			write(t, f.Key, pair.Key)
		},
		"relay.crt: its extended key usage lacks serverAuth": func(f identity.Files) {
			pair := authority.Issue("", time.Hour, x509.ExtKeyUsageClientAuth)
			write(t, f.Cert, pair.Cert)
			write(t, f.Key, pair.Key)
		},
		"ca.crt: no PEM certificate": func(f identity.Files) { write(t, f.ClientCA, []byte("rubbish")) },
	} {
		files, err := authority.WriteServer(t.TempDir(), good)
		if err != nil {
			t.Fatal(err)
		}
		change(files)
		if _, err := identity.NewKeeper(files); err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), filepath.Dir(files.Cert)+"/", ""), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
