// Package identitytest issues the certificates that tests and benchmarks use.
package identitytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"spillway.dev/relay/internal/identity"
)

// Identity is the URI SAN pattern of the local stack.
const Identity = identity.Pattern("spiffe://spillway.local/cluster/{cluster}/service/{service}")

// RelayURI returns the URI SAN of a cluster's relay.
func RelayURI(cluster string) string { return "spiffe://spillway.local/cluster/" + cluster + "/relay" }

// Authority signs certificates. Its methods panic when the machine provides no randomness.
type Authority struct {
	PEM  []byte // the authority's own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Pair is a certificate and its private key, both PEM.
type Pair struct{ Cert, Key []byte }

// NewAuthority creates a self-signed root that is valid for one hour.
func NewAuthority() *Authority {
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	a := &Authority{key: must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))}
	complete(template, time.Hour)
	der := must(x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key))
	a.cert, a.PEM = must(x509.ParseCertificate(der)), block("CERTIFICATE", der)
	return a
}

// Issue signs a certificate for the host localhost with the given URI SAN ("" means none). The
// certificate expires after `lasting`; a negative duration makes one that has expired already.
func (a *Authority) Issue(uri string, lasting time.Duration, usages ...x509.ExtKeyUsage) Pair {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{DNSNames: []string{"localhost"}, ExtKeyUsage: usages, KeyUsage: x509.KeyUsageDigitalSignature}
	if uri != "" {
		template.URIs = []*url.URL{must(url.Parse(uri))}
	}
	complete(template, lasting)
	der := must(x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key))
	return Pair{block("CERTIFICATE", der), block("PRIVATE KEY", must(x509.MarshalPKCS8PrivateKey(key)))}
}

// Relay issues the server certificate of a cluster's relay.
func (a *Authority) Relay(cluster string) Pair {
	return a.Issue(RelayURI(cluster), time.Hour, x509.ExtKeyUsageServerAuth)
}

// Envoy issues the client certificate of one service's Envoy.
func (a *Authority) Envoy(cluster, service string) Pair {
	return a.Issue(Identity.Fill(cluster, service), time.Hour, x509.ExtKeyUsageClientAuth)
}

// ClientTLS returns the configuration of a client that presents the pair and trusts this authority.
// An empty pair means no client certificate.
func (a *Authority) ClientTLS(pair Pair) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	config := &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS13}
	if pair.Cert != nil {
		config.Certificates = []tls.Certificate{must(tls.X509KeyPair(pair.Cert, pair.Key))}
	}
	return config
}

// WriteServer writes the certificate, key and authority that a relay reads into the folder.
func (a *Authority) WriteServer(folder string, pair Pair) (identity.Files, error) {
	files := identity.Files{Cert: filepath.Join(folder, "relay.crt"), Key: filepath.Join(folder, "relay.key"),
		ClientCA: filepath.Join(folder, "ca.crt")}
	for path, content := range map[string][]byte{files.Cert: pair.Cert, files.Key: pair.Key, files.ClientCA: a.PEM} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return files, err
		}
	}
	return files, nil
}

// complete fills in the serial number and the validity, which begins an hour before now or, when
// `lasting` is negative, an hour before the expiry.
func complete(template *x509.Certificate, lasting time.Duration) {
	template.SerialNumber = must(rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)))
	template.NotAfter = time.Now().Add(lasting)
	template.NotBefore = time.Now().Add(min(lasting, 0) - time.Hour)
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
