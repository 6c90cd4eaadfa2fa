package state

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/signing"
)

func open(t *testing.T, folder, cluster string) *Store {
	t.Helper()
	store, err := Open(folder, cluster)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestSaveAndLoad checks that a saved ruleset is loaded again, also by the next process, and that a
// second save replaces it. No other file stays in the folder, not even one that a crash left half
// written.
func TestSaveAndLoad(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new")
	store := open(t, folder, "north")
	if got, err := store.Load(); got != nil || err != nil {
		t.Fatalf("empty store: %v, %v", got, err)
	}
	for version := uint64(1); version <= 2; version++ {
		want := signing.Value{Payload: []byte{byte(version), '\n', 0, '\n'}, Signature: "c2ln", KeyID: "k"}
		if err := store.Save(want); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "ruleset-1.tmp"), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := open(t, folder, "north").Load(); err != nil || !reflect.DeepEqual(*got, want) {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if files, _ := os.ReadDir(folder); len(files) != 1 {
		t.Errorf("files %v", files)
	}
}

// TestAcknowledgements checks that acknowledgements are loaded in order, and that saving an empty
// list leaves no file.
func TestAcknowledgements(t *testing.T) {
	store := open(t, t.TempDir(), "north")
	want := []*spillwayv1.Acknowledgement{{Envoy: "a", Detail: "x\ny"}, {Envoy: "b"}, {}}
	if err := store.SaveAcks(want); err != nil {
		t.Fatal(err)
	}
	got, err := store.LoadAcks()
	if err != nil || !slices.EqualFunc(got, want, func(a, b *spillwayv1.Acknowledgement) bool { return proto.Equal(a, b) }) {
		t.Errorf("%v, %v", got, err)
	}
	for range 2 {
		if err := store.SaveAcks(nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := store.LoadAcks(); len(got) != 0 || err != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// TestDamageIsNoticed checks that every truncation, every added byte and every changed byte is
// detected, reported and moved aside. The next relay starts clean.
func TestDamageIsNoticed(t *testing.T) {
	store := open(t, t.TempDir(), "north")
	if err := store.Save(signing.Value{Payload: []byte("rules"), Signature: "s", KeyID: "k"}); err != nil {
		t.Fatal(err)
	}
	path := store.path(rulesetKind)
	good, _ := os.ReadFile(path)
	for i := range good {
		for flip := 1; flip < 256; flip++ {
			changed := bytes.Clone(good)
			changed[i] ^= byte(flip)
			if payload, err := unframe(rulesetKind, "north", changed); err == nil {
				t.Fatalf("byte %d changed from %#x to %#x: taken as %q", i, good[i], changed[i], payload)
			}
		}
		flipped := bytes.Clone(good)
		flipped[i] ^= 1
		for _, damaged := range [][]byte{flipped, good[:i], append(bytes.Clone(good), byte(i))} {
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := store.Load(); got != nil || err == nil {
				t.Fatalf("byte %d: %v, %v", i, got, err)
			}
			if got, err := store.Load(); got != nil || err != nil {
				t.Fatalf("byte %d: not moved aside: %v, %v", i, got, err)
			}
		}
	}
}

// TestForeignFilesAreRefused checks that a whole file of another cluster, kind or format is
// refused, with an error that says what it is.
func TestForeignFilesAreRefused(t *testing.T) {
	store := open(t, t.TempDir(), "north")
	payload := []byte("k\ns\nrules")
	newer := bytes.Replace(frame(rulesetKind, "north", payload), []byte(magic+format), []byte(magic+"3"), 1)
	for want, content := range map[string][]byte{
		`it is "signed-ruleset south"; must be "signed-ruleset north"`: frame(rulesetKind, "south", payload),
		`it is "acknowledgements north"`:                               frame(acksKind, "north", payload),
		`format "3"; this relay reads format 2`:                        newer,
		"it lacks a key id, a signature or a ruleset":                  frame(rulesetKind, "north", []byte("k\nrules")),
		"not a state file":                                             []byte("SPILLWAY-RULESET-1\n"),
	} {
		if err := os.WriteFile(store.path(rulesetKind), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := store.Load(); got != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %s", got, err, want)
		}
	}
}

// FuzzUnframe checks that unframe, for any bytes, returns either a payload that was framed or an
// error.
func FuzzUnframe(f *testing.F) {
	f.Add(frame(rulesetKind, "north", []byte("payload")))
	f.Add([]byte(magic + format + " \n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		payload, err := unframe(rulesetKind, "north", content)
		if err == nil && !bytes.Equal(content, frame(rulesetKind, "north", payload)) {
			t.Errorf("%q was read as %q", content, payload)
		}
	})
}
