package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/credentials"
)

const identityPattern = "spiffe://bench.local/cluster/{cluster}/service/{service}"

// authority signs the certificates of one run.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pool        *x509.CertPool
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := validFor(&x509.Certificate{Subject: pkix.Name{CommonName: "bench-relay"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign})
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	return &authority{certificate, key, pool}, nil
}

func validFor(template *x509.Certificate) *x509.Certificate {
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	return template
}

// sign a leaf with a URI SAN, good for both ends of a connection on this machine.
func (a *authority) sign(uri string) (tls.Certificate, error) {
	parsed, err := url.Parse(uri)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := validFor(&x509.Certificate{URIs: []*url.URL{parsed}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// files of the relay: its certificate, its key and the authority, as environment variables.
func (a *authority) files(folder string) ([]string, error) {
	leaf, err := a.sign("spiffe://bench.local/relay")
	if err != nil {
		return nil, err
	}
	key, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		return nil, err
	}
	write := func(name, kind string, der []byte) (string, error) {
		path := filepath.Join(folder, name)
		return path, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	certPath, err1 := write("relay.crt", "CERTIFICATE", leaf.Certificate[0])
	keyPath, err2 := write("relay.key", "PRIVATE KEY", key)
	caPath, err3 := write("ca.crt", "CERTIFICATE", a.certificate.Raw)
	return []string{"SPILLWAY_XDS_CERT=" + certPath, "SPILLWAY_XDS_KEY=" + keyPath, "SPILLWAY_XDS_CLIENT_CA=" + caPath,
		"SPILLWAY_XDS_IDENTITY=" + identityPattern}, errors.Join(err1, err2, err3)
}

// client credentials of an Envoy's certificate.
func (a *authority) client(certificate tls.Certificate) credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13})
}
