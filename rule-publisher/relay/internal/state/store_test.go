package state

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/spillwayv1"
)

// What is saved is loaded; a second save replaces it and leaves no other file behind.
func TestSaveAndLoad(t *testing.T) {
	store, err := Open(filepath.Join(t.TempDir(), "new"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := store.Load(); got != nil || err != nil {
		t.Fatalf("empty store: %v, %v", got, err)
	}
	for version := uint64(1); version <= 2; version++ {
		want := &spillwayv1.Ruleset{Version: version, Policy: "p"}
		if err := store.Save(want); err != nil {
			t.Fatal(err)
		}
		if got, err := store.Load(); err != nil || !proto.Equal(got, want) {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if files, _ := os.ReadDir(store.folder); len(files) != 1 {
		t.Errorf("files %v", files)
	}
}

// Every truncation and every flipped byte is noticed, told, and moved aside.
func TestDamageIsNoticed(t *testing.T) {
	store, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Save(&spillwayv1.Ruleset{Version: 9, Policy: "p", Id: "i"}); err != nil {
		t.Fatal(err)
	}
	good, _ := os.ReadFile(store.path())
	for i := range good {
		flipped := append([]byte{}, good...)
		flipped[i] ^= 1
		for _, damaged := range [][]byte{flipped, good[:i]} {
			if err := os.WriteFile(store.path(), damaged, 0o600); err != nil {
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
