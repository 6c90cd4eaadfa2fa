package queueguardextension

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.opentelemetry.io/collector/component"
	"go.uber.org/zap"
)

const (
	// backup ends the name of a file that was moved aside, after a time. file_storage names such
	// files in the same way.
	backup = ".backup"
	moment = ".2006-01-02T15:04:05.000"
	// compaction begins the names of files to which file_storage writes a compacted queue (its
	// TempDbPrefix). Such a file at start is from an interrupted compaction. The queue itself is
	// still whole, and file_storage removes these files when it starts.
	compaction = "tempdb"
)

type guard struct {
	directory string
	logger    *zap.Logger
}

// Start checks every queue once. Extensions start before pipelines, and file_storage opens a file
// only when the pipeline's exporter asks for it. So nothing has these files open yet.
func (g *guard) Start(context.Context, component.Host) error {
	entries, err := os.ReadDir(g.directory)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("directory: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if !entry.Type().IsRegular() || strings.HasSuffix(name, backup) || strings.HasPrefix(name, compaction) {
			continue
		}
		if broken := readAll(filepath.Join(g.directory, name)); broken != nil {
			g.forget(name, entries)
			if err := g.moveAside(name, broken); err != nil {
				return err
			}
		}
	}
	return nil
}

// Shutdown does nothing, because all work is done in Start.
func (g *guard) Shutdown(context.Context) error { return nil }

func (g *guard) moveAside(name string, broken error) error {
	path := filepath.Join(g.directory, name)
	aside := path + time.Now().UTC().Format(moment) + backup
	if err := os.Rename(path, aside); err != nil {
		return fmt.Errorf("a torn queue cannot be moved aside: %w", err)
	}
	g.logger.Error("A queue is torn: items in it that Kafka did not have yet are lost",
		zap.String("file", path), zap.String("kept_as", aside), zap.Error(broken))
	return nil
}

// forget removes the files of this queue that earlier starts have moved aside. One corrupted file
// of each queue is enough to keep on the disk.
func (g *guard) forget(name string, before []os.DirEntry) {
	for _, entry := range before {
		rest, ours := strings.CutPrefix(entry.Name(), name)
		when, aside := strings.CutSuffix(rest, backup)
		if _, err := time.Parse(moment, when); !ours || !aside || err != nil {
			continue
		}
		if err := os.Remove(filepath.Join(g.directory, entry.Name())); err != nil {
			g.logger.Warn("An earlier torn queue cannot be removed", zap.Error(err))
		}
	}
}

// readAll reads every entry of a queue in this goroutine, so that any damage shows here: as an
// error, a failed assertion of bbolt, or a page beyond the end of the file.
func readAll(path string) (err error) {
	// bbolt makes a database of an empty file, which a crash may well leave.
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if found := recover(); found != nil {
			err = fmt.Errorf("%v", found)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil // another process has it open, so it is not a leftover; file_storage reports that itself
	}
	if err != nil {
		return err
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		// bbolt grows the file before it commits a transaction that needs more pages. In a shorter
		// file it writes to free pages beyond the end without mapping them, and later panics when
		// it reads them, even if every entry was still there.
		if info, err := os.Stat(path); err != nil {
			return err
		} else if info.Size() < tx.Size() {
			return fmt.Errorf("%d bytes long; its newest meta page needs %d", info.Size(), tx.Size())
		}
		return tx.ForEach(func(_ []byte, bucket *bbolt.Bucket) error {
			return bucket.ForEach(touch)
		})
	})
}

var sink byte //nolint:unused // what is written here cannot be optimised away

// touch reads a byte of every page of an entry.
func touch(key, value []byte) error {
	for _, bytes := range [][]byte{key, value} {
		for at := 0; at < len(bytes); at += os.Getpagesize() {
			sink ^= bytes[at]
		}
		if len(bytes) > 0 {
			sink ^= bytes[len(bytes)-1]
		}
	}
	return nil
}
