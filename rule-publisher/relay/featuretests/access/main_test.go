package access

import (
	"os"
	"path/filepath"
	"testing"

	"spillway.dev/relay/featuretests/harness"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run makes the tests' authority the machine's only root certificate. Go reads the roots once per
// process.
func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "roots")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "roots.crt")
	if err := os.WriteFile(file, harness.Authority.PEM, 0o600); err != nil {
		panic(err)
	}
	os.Setenv("SSL_CERT_FILE", file)
	os.Setenv("SSL_CERT_DIR", folder)
	return m.Run()
}
