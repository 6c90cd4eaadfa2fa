// Package signingtest signs rulesets in tests and benchmarks, as the publisher does.
package signingtest

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"

	"github.com/nats-io/nats.go"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/signing"
)

// Key signs values. Its methods panic on errors that cannot happen.
type Key struct {
	ID      string
	PEM     []byte // the public key
	private ed25519.PrivateKey
}

// NewKey generates a key.
func NewKey() *Key {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	return Of(private)
}

// Of returns the Key of a given private key.
func Of(private ed25519.PrivateKey) *Key {
	spki, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		panic(err)
	}
	return &Key{signing.KeyID(spki), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}), private}
}

// Sign signs a payload as the cluster's value.
func (k *Key) Sign(cluster string, payload []byte) signing.Value {
	signature := ed25519.Sign(k.private, signing.Message(cluster, payload))
	return signing.Value{Payload: payload, Signature: base64.StdEncoding.EncodeToString(signature), KeyID: k.ID}
}

// Trusted returns a set of keys that holds only this one.
func (k *Key) Trusted() signing.Keys {
	return signing.Keys{k.ID: k.private.Public().(ed25519.PublicKey)}
}

// Message returns the NATS message that writes a value to the cluster's key of the bucket.
func Message(cluster string, value signing.Value) *nats.Msg {
	message := nats.NewMsg("$KV." + names.NatsBucketRulesets + "." + cluster)
	message.Data = value.Payload
	if value.Signature != "" {
		message.Header.Set(names.NatsHeaderSignature, value.Signature)
	}
	if value.KeyID != "" {
		message.Header.Set(names.NatsHeaderKeyId, value.KeyID)
	}
	return message
}
