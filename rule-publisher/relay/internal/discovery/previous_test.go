package discovery

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/spillwayv1"
	"spillway.dev/relay/internal/state"
	"spillway.dev/relay/internal/table"
)

// TestPreviousVersion checks one version of skew. A relay starts from what the previous version
// kept on disk, and reads a ruleset of the previous publisher, also with a field that the next
// version adds.
func TestPreviousVersion(t *testing.T) {
	found, _ := filepath.Glob("../../../../contracts/golden/previous/*")
	if len(found) != 1 {
		t.Fatalf("previous versions: %v", found)
	}
	read := func(name string) []byte {
		content, err := os.ReadFile(filepath.Join(found[0], name))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	d := newDirectory(t, t.TempDir(), byName)
	folder := filepath.Join(t.TempDir(), "relay")
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(found[0], "relay"))); err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(folder, "west")
	if err != nil {
		t.Fatal(err)
	}
	d.Store = store
	kept := d.kept()["names"][table.Place{Service: "frontend", Cluster: "west"}]
	if len(kept) != 1 || kept[0].Address.String() != "10.1.0.20:8080" || kept[0].Zone != "a" {
		t.Errorf("endpoints kept: %v", kept)
	}
	acks, err := store.LoadAcks()
	if err != nil || len(acks) != 1 || acks[0].GetRulesetVersion() != 7 || acks[0].GetOutcome() != spillwayv1.Outcome_OUTCOME_NACK {
		t.Errorf("acknowledgements kept: %v, %v", acks, err)
	}
	value := read("ruleset_west.binpb")
	for _, payload := range [][]byte{value, append(slices.Clone(value), 0xfa, 0x3f, 1, 'x')} {
		ruleset := &spillwayv1.Ruleset{}
		if err := proto.Unmarshal(payload, ruleset); err != nil {
			t.Fatal(err)
		}
		rules, err := table.ParseRules(ruleset, "west")
		if err != nil || rules.Version != 7 || rules.Policy != "spillway" || len(rules.Skipped) != 0 {
			t.Errorf("%+v, %v", rules, err)
		}
	}
}
