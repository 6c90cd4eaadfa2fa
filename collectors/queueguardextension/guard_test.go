package queueguardextension

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// The entries fill more than half of a file of 4 MiB, which is how far bbolt grows it for them.
const entries, size = 300, 9000

// queue creates a database as file_storage writes it: without a synced list of free pages, and with
// entries over several pages.
func queue(t *testing.T, path string) []byte {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	require.NoError(t, err)
	for entry := range entries {
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			bucket, err := tx.CreateBucketIfNotExists([]byte("default"))
			require.NoError(t, err)
			return bucket.Put(fmt.Appendf(nil, "%d", entry), []byte(strings.Repeat("x", size)))
		}))
	}
	require.NoError(t, db.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}

func overwritten(content []byte, from, to int, with func([]byte)) []byte {
	torn := append([]byte(nil), content...)
	with(torn[from:to])
	return torn
}

func zeros(b []byte) { clear(b) }

func noise(b []byte) { _, _ = rand.Read(b) }

// TestATornQueueIsOutOfTheWay checks that, whatever a crash has done to the file, what lies there
// after Start can be opened and written.
func TestATornQueueIsOutOfTheWay(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "exporter_kafka__traces")
	whole := queue(t, path)
	page, n := os.Getpagesize(), len(whole)
	for name, content := range map[string][]byte{
		"half":               whole[:n/2],
		"less than a page":   whole[:1000],
		"no meta page":       overwritten(whole, 0, 2*page, zeros),
		"only meta pages":    overwritten(whole, 2*page, n, zeros),
		"noise in between":   overwritten(whole, n/3, 2*n/3, noise),
		"noise but for meta": overwritten(whole, 2*page, n, noise),
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, content, 0o600))
			guard := &guard{directory: folder, logger: zap.NewNop()}
			require.NoError(t, guard.Start(t.Context(), nil))
			assert.NoFileExists(t, path)
			kept, err := filepath.Glob(path + ".*" + backup)
			require.NoError(t, err)
			require.Len(t, kept, 1)
			moved, err := os.ReadFile(kept[0])
			require.NoError(t, err)
			assert.Equal(t, content, moved)
			require.NoError(t, os.Remove(kept[0]))
		})
	}
}

// TestAQueueShorterThanItSaysIsTorn checks that a file that was cut after its last entry is moved
// aside: every entry can be read, but bbolt panics soon after it is written again.
func TestAQueueShorterThanItSaysIsTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "exporter_kafka__traces")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType})
	require.NoError(t, err)
	bucket := []byte("default")
	for _, step := range []func(*bbolt.Bucket) error{
		func(b *bbolt.Bucket) error { return b.Put([]byte("big"), make([]byte, 1<<20)) },
		func(b *bbolt.Bucket) error { return b.Delete([]byte("big")) },
		func(b *bbolt.Bucket) error { return b.Put([]byte("last"), []byte(strings.Repeat("x", size))) },
	} {
		require.NoError(t, db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(bucket)
			require.NoError(t, err)
			return step(b)
		}))
	}
	require.NoError(t, db.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	page := os.Getpagesize()
	cut := (bytes.LastIndexByte(whole, 'x')/page + 2) * page
	require.Less(t, cut, 1<<20)
	require.NoError(t, os.WriteFile(path, whole[:cut], 0o600))

	core, logs := observer.New(zap.DebugLevel)
	require.NoError(t, (&guard{directory: filepath.Dir(path), logger: zap.New(core)}).Start(t.Context(), nil))
	assert.NoFileExists(t, path)
	require.Len(t, logs.All(), 1)
	assert.Contains(t, logs.All()[0].ContextMap()["error"], "; its newest meta page needs ")
}

// TestWhatCanBeReadStays checks that a whole queue, an empty file, a file with one intact meta page
// of two, and a missing folder are left alone.
func TestWhatCanBeReadStays(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "exporter_kafka__traces")
	whole := queue(t, path)
	for name, content := range map[string][]byte{
		"whole":         whole,
		"empty":         {},
		"one meta page": overwritten(whole, 0, os.Getpagesize(), zeros),
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, os.WriteFile(path, content, 0o600))
			require.NoError(t, (&guard{directory: folder, logger: zap.NewNop()}).Start(t.Context(), nil))
			found, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.Equal(t, content, found)
		})
	}
	require.NoError(t, (&guard{directory: filepath.Join(folder, "none"), logger: zap.NewNop()}).Start(t.Context(), nil))
	require.ErrorContains(t, (&Config{}).Validate(), "directory: ")
}

// TestAnInterruptedCompactionIsNoTornQueue checks that the file of an interrupted compaction is not
// treated as a queue. The queue itself is whole, no loss is reported, and the file stays for
// file_storage, which removes it.
func TestAnInterruptedCompactionIsNoTornQueue(t *testing.T) {
	folder := t.TempDir()
	whole := queue(t, filepath.Join(folder, "exporter_kafka__traces"))
	unfinished := filepath.Join(folder, compaction+"1234")
	require.NoError(t, os.WriteFile(unfinished, whole[:len(whole)/2], 0o600))
	core, logs := observer.New(zap.DebugLevel)
	require.NoError(t, (&guard{directory: folder, logger: zap.New(core)}).Start(t.Context(), nil))
	assert.Empty(t, logs.All())
	assert.FileExists(t, unfinished)
}

// TestOneTornFileOfEachQueueIsKept checks that a machine that crashes again and again does not fill
// its disk: of each queue, the last corrupted file is kept.
func TestOneTornFileOfEachQueueIsKept(t *testing.T) {
	folder := t.TempDir()
	path, other := filepath.Join(folder, "exporter_kafka__traces"), filepath.Join(folder, "exporter_kafka__traces.2")
	for n := range 3 {
		for _, torn := range []string{path, other} {
			require.NoError(t, os.WriteFile(torn, fmt.Appendf(nil, "torn %d", n), 0o600))
		}
		require.NoError(t, (&guard{directory: folder, logger: zap.NewNop()}).Start(t.Context(), nil))
	}
	for _, torn := range []string{path, other} {
		kept, err := filepath.Glob(torn + ".????-*" + backup)
		require.NoError(t, err)
		require.Len(t, kept, 1)
		content, err := os.ReadFile(kept[0])
		require.NoError(t, err)
		assert.Equal(t, "torn 2", string(content))
	}
}
