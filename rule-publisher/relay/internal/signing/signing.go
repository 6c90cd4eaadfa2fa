// Package signing checks whether a trusted publisher has signed a ruleset for this cluster. Anyone
// who may write to NATS can put any bytes into the cluster's key, so the relay decodes a value only
// after its signature has been verified.
//
// The signature covers three parts, each preceded by its length in bytes (8 bytes, big-endian): the
// signing context, the cluster's name and the value. The publisher signs the same bytes
// (spillway_publisher/bucket/signing.py).
package signing

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"spillway.dev/contracts/names"
)

// Value is the content of the cluster's key, with the signature and key id from its headers.
type Value struct {
	Payload   []byte
	Signature string // base64
	KeyID     string
}

// Reasons for which Verify refuses a value.
var (
	ErrUnsigned     = errors.New("not signed")
	ErrUnknownKey   = errors.New("signed by a key that is not trusted")
	ErrBadSignature = errors.New("the signature does not match this value")
	ErrOtherCluster = errors.New("signed for another cluster")
)

// Keys maps the id of each trusted key to the key.
type Keys map[string]ed25519.PublicKey

// Verify returns nil when one of the keys has signed the value for the cluster. Otherwise the error
// wraps one of the four above. `others`, the other clusters of the mesh, only serves to tell
// ErrOtherCluster from ErrBadSignature.
func (k Keys) Verify(cluster string, others []string, value Value) error {
	if value.Signature == "" || value.KeyID == "" {
		return fmt.Errorf("%w: no %s with %s", ErrUnsigned, names.NatsHeaderSignature, names.NatsHeaderKeyId)
	}
	key, ok := k[value.KeyID]
	if !ok {
		return fmt.Errorf("%w: %.64q; trusted: %s", ErrUnknownKey, value.KeyID, strings.Join(slices.Sorted(maps.Keys(k)), ", "))
	}
	signature, err := base64.StdEncoding.Strict().DecodeString(value.Signature)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadSignature, err)
	}
	if ed25519.Verify(key, Message(cluster, value.Payload), signature) {
		return nil
	}
	for _, other := range others {
		if other != cluster && ed25519.Verify(key, Message(other, value.Payload), signature) {
			return fmt.Errorf("%w: %s, by key %s", ErrOtherCluster, other, value.KeyID)
		}
	}
	return fmt.Errorf("%w: key %s", ErrBadSignature, value.KeyID)
}

// Message returns the bytes that are signed when the payload is stored as the cluster's value.
func Message(cluster string, payload []byte) []byte {
	var out []byte
	for _, part := range [][]byte{[]byte(names.SigningContext), []byte(cluster), payload} {
		out = append(binary.BigEndian.AppendUint64(out, uint64(len(part))), part...)
	}
	return out
}

// KeyID returns the first 16 hex digits of the SHA-256 of the public key (SPKI, DER).
func KeyID(spki []byte) string {
	sum := sha256.Sum256(spki)
	return hex.EncodeToString(sum[:])[:16]
}

// ParseKeys reads the content of a PEM file: one or more PUBLIC KEY blocks (SPKI), all Ed25519.
func ParseKeys(content []byte) (Keys, error) {
	keys, number := Keys{}, 0
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		number++
		parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
		key, ok := parsed.(ed25519.PublicKey)
		if block.Type != "PUBLIC KEY" || err != nil || !ok {
			return nil, fmt.Errorf("block %d: must be an Ed25519 PUBLIC KEY (SPKI, PEM)", number)
		}
		keys[KeyID(block.Bytes)] = key
	}
	if len(keys) == 0 {
		return nil, errors.New("no PUBLIC KEY block in it; at least one is needed")
	}
	// The decoder skips a block that is truncated or damaged. Without this check such a file would
	// silently drop a key.
	if begun := bytes.Count(content, []byte("-----BEGIN")); begun != number {
		return nil, fmt.Errorf("%d blocks begin, %d are whole", begun, number)
	}
	return keys, nil
}
