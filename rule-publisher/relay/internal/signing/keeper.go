package signing

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"spillway.dev/relay/internal/count"
	"spillway.dev/relay/internal/watch"
)

// Keeper holds the newest valid keys of a file, which may be rotated.
type Keeper struct {
	files watch.Files
	keys  atomic.Pointer[Keys]
}

// NewKeeper reads the file. The error names the file and what is wrong with it.
func NewKeeper(path string) (*Keeper, error) {
	k := &Keeper{}
	k.files = watch.Files{Paths: []string{path}, Use: func(content [][]byte) error {
		keys, err := ParseKeys(content[0])
		if err != nil {
			return fmt.Errorf("SPILLWAY_RULESET_KEYS: %s: %w", path, err)
		}
		k.keys.Store(&keys)
		return nil
	}}
	return k, k.files.Load()
}

// Keys returns the keys that are trusted now.
func (k *Keeper) Keys() Keys { return *k.keys.Load() }

// Watch checks the file for changes until the context ends, and calls `changed` after new keys are
// in use. Invalid new content is counted and logged once, and the previous keys stay trusted.
func (k *Keeper) Watch(ctx context.Context, every time.Duration, counters *count.Counters, log *slog.Logger, changed func()) {
	k.files.Watch(ctx, every, func(refused error) {
		if refused != nil {
			counters.Add(count.RulesetKeysRefused)
			log.Error("new ruleset keys are refused; the old ones stay", "error", refused)
			return
		}
		counters.Add(count.RulesetKeysTaken)
		log.Info("new ruleset keys are trusted", "keys", slices.Sorted(maps.Keys(k.Keys())))
		changed()
	})
}
