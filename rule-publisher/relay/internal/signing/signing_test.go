package signing_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/quick"

	"spillway.dev/contracts/names"
	"spillway.dev/relay/internal/signing"
	"spillway.dev/relay/internal/signing/signingtest"
)

// TestGoldenSignatures checks that each vector of contracts/golden/signatures.json, which the
// publisher signed, verifies with the public key in that file. The signed bytes must equal those
// that this package computes.
func TestGoldenSignatures(t *testing.T) {
	content, err := os.ReadFile("../../../../contracts/golden/signatures.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Private string `json:"private_key_of_the_test_hex"`
		Public  string `json:"public_key_pem"`
		Vectors []struct {
			Cluster string
			Payload []byte
			Signed  string `json:"signed_hex"`
			Headers map[string]string
		}
	}
	if err := json.Unmarshal(content, &golden); err != nil || len(golden.Vectors) == 0 {
		t.Fatalf("%d vectors: %v", len(golden.Vectors), err)
	}
	keys, err := signing.ParseKeys([]byte(golden.Public))
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := hex.DecodeString(golden.Private)
	key := signingtest.Of(ed25519.NewKeyFromSeed(seed))
	for _, v := range golden.Vectors {
		if got := hex.EncodeToString(signing.Message(v.Cluster, v.Payload)); got != v.Signed {
			t.Errorf("%s: signed is %s, want %s", v.Cluster, got, v.Signed)
		}
		value := signing.Value{Payload: v.Payload, Signature: v.Headers[names.NatsHeaderSignature], KeyID: v.Headers[names.NatsHeaderKeyId]}
		if err := keys.Verify(v.Cluster, nil, value); err != nil {
			t.Errorf("%s: %v", v.Cluster, err)
		}
		if ours := key.Sign(v.Cluster, v.Payload); ours.Signature != value.Signature || ours.KeyID != value.KeyID {
			t.Errorf("%s: signed here it is %+v", v.Cluster, ours)
		}
	}
}

// TestOnlyWhatWasSignedVerifies checks that a value verifies for the cluster that it was signed
// for, and for no other name, value, key or signature. The difference may be a single bit, or bytes
// moved between name and payload.
func TestOnlyWhatWasSignedVerifies(t *testing.T) {
	key, other := signingtest.NewKey(), signingtest.NewKey()
	keys := key.Trusted()
	property := func(cluster, otherCluster string, payload, otherPayload []byte, where uint) bool {
		value := key.Sign(cluster, payload)
		signature, _ := base64.StdEncoding.DecodeString(value.Signature)
		spoiled := bytes.Clone(signature)
		spoiled[where/8%64] ^= 1 << (where % 8)
		moved := signing.Value{Payload: append([]byte(otherCluster), payload...), Signature: value.Signature, KeyID: value.KeyID}
		posing := other.Sign(cluster, payload)
		posing.KeyID = key.ID
		refused := func(cluster string, v signing.Value) bool {
			return errors.Is(keys.Verify(cluster, nil, v), signing.ErrBadSignature)
		}
		return keys.Verify(cluster, nil, value) == nil &&
			(cluster == otherCluster || refused(otherCluster, value)) &&
			(bytes.Equal(payload, otherPayload) || refused(cluster, signing.Value{Payload: otherPayload, Signature: value.Signature, KeyID: key.ID})) &&
			refused(cluster, signing.Value{Payload: payload, Signature: base64.StdEncoding.EncodeToString(spoiled), KeyID: key.ID}) &&
			(otherCluster == "" || refused(cluster, moved)) && refused(cluster, posing)
	}
	if err := quick.Check(property, &quick.Config{MaxCount: 500}); err != nil {
		t.Error(err)
	}
}

// TestReasons checks that each refusal returns its own reason. A value that was signed for another
// cluster of the mesh is distinguished from one with a bad signature.
func TestReasons(t *testing.T) {
	key, other := signingtest.NewKey(), signingtest.NewKey()
	good := key.Sign("north", []byte("rules"))
	others := []string{"north", "south"}
	for _, test := range []struct {
		name  string
		value signing.Value
		want  error
	}{
		{"good", good, nil},
		{"no headers", signing.Value{Payload: good.Payload}, signing.ErrUnsigned},
		{"no signature", signing.Value{Payload: good.Payload, KeyID: good.KeyID}, signing.ErrUnsigned},
		{"no key id", signing.Value{Payload: good.Payload, Signature: good.Signature}, signing.ErrUnsigned},
		{"another key", other.Sign("north", []byte("rules")), signing.ErrUnknownKey},
		{"another cluster", key.Sign("south", []byte("rules")), signing.ErrOtherCluster},
		{"a cluster of no mesh", key.Sign("mars", []byte("rules")), signing.ErrBadSignature},
		{"another value", signing.Value{Payload: []byte("Rules"), Signature: good.Signature, KeyID: good.KeyID}, signing.ErrBadSignature},
		{"no base64", signing.Value{Payload: good.Payload, Signature: "!", KeyID: good.KeyID}, signing.ErrBadSignature},
		{"too short", signing.Value{Payload: good.Payload, Signature: "AAAA", KeyID: good.KeyID}, signing.ErrBadSignature},
	} {
		if err := key.Trusted().Verify("north", others, test.value); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
}

// TestKeyFiles checks that a file with anything but Ed25519 public keys is refused with an error
// that names it, and that all keys of a file with several are trusted.
func TestKeyFiles(t *testing.T) {
	one, two := signingtest.NewKey(), signingtest.NewKey()
	foreign, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	spki, _ := x509.MarshalPKIXPublicKey(foreign.Public())
	path := filepath.Join(t.TempDir(), "keys.pem")
	for want, content := range map[string][]byte{
		"no PUBLIC KEY block in it":              []byte("rubbish"),
		"block 2: must be an Ed25519 PUBLIC KEY": append(bytes.Clone(one.PEM), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki})...),
		"2 blocks begin, 1 are whole":            append(bytes.Clone(one.PEM), two.PEM[:len(two.PEM)/2]...),
		"3 blocks begin, 2 are whole":            slices.Concat(one.PEM, two.PEM[:len(two.PEM)/2], []byte("\n"), two.PEM),
		"block 1: must be an Ed25519 PUBLIC KEY": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: spki}),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := signing.NewKeeper(path); err == nil || !strings.Contains(err.Error(), "SPILLWAY_RULESET_KEYS: "+path+": "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := os.WriteFile(path, append(bytes.Clone(one.PEM), two.PEM...), 0o600); err != nil {
		t.Fatal(err)
	}
	keeper, err := signing.NewKeeper(path)
	if err != nil || len(keeper.Keys()) != 2 || keeper.Keys()[one.ID] == nil || keeper.Keys()[two.ID] == nil {
		t.Errorf("keys %v: %v", keeper.Keys(), err)
	}
	if _, err := signing.NewKeeper(path + ".none"); err == nil {
		t.Error("a file that is not there is no error")
	}
}
