package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc/credentials"
)

// CollectorTLS are the paths of PEM files. The zero value means that the connection to the
// collector is not encrypted.
type CollectorTLS struct {
	CA        string // authorities that the collector's certificate must chain to
	Cert, Key string // the pod's own, presented to the collector
}

func readCollectorTLS(getenv func(string) string) (files CollectorTLS, problems []string) {
	keys := []string{"SPILLWAY_COLLECTOR_CA", "SPILLWAY_COLLECTOR_CERT", "SPILLWAY_COLLECTOR_KEY"}
	paths := []*string{&files.CA, &files.Cert, &files.Key}
	given := 0
	for i, key := range keys {
		if *paths[i] = getenv(key); *paths[i] != "" {
			given++
		}
	}
	if given == 0 {
		return files, nil
	}
	for i, key := range keys {
		if *paths[i] == "" {
			problems = append(problems, key+": not set, although others of "+
				"SPILLWAY_COLLECTOR_CA, _CERT and _KEY are; allowed: all three or none")
		}
	}
	if problems == nil {
		if _, err := files.load(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return files, problems
}

// load reads the files. The error names the variables.
func (f CollectorTLS) load() (*tls.Config, error) {
	bundle, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, fmt.Errorf("SPILLWAY_COLLECTOR_CA: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("SPILLWAY_COLLECTOR_CA: %s: no PEM certificate in it", f.CA)
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("SPILLWAY_COLLECTOR_CERT, SPILLWAY_COLLECTOR_KEY: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: authorities, Certificates: []tls.Certificate{pair}}, nil
}

// credentials returns credentials that read the files at every handshake, so that renewed files are
// used.
func (f CollectorTLS) credentials() credentials.TransportCredentials {
	return &fileCredentials{TransportCredentials: credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13}), files: f}
}

type fileCredentials struct {
	credentials.TransportCredentials
	files CollectorTLS
}

// ClientHandshake reads the files and performs the TLS handshake with them.
func (c *fileCredentials) ClientHandshake(ctx context.Context, authority string, connection net.Conn) (
	net.Conn, credentials.AuthInfo, error) {
	config, err := c.files.load()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, connection)
}

func (c *fileCredentials) Clone() credentials.TransportCredentials {
	return &fileCredentials{TransportCredentials: c.TransportCredentials.Clone(), files: c.files}
}
