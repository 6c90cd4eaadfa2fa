// Package state keeps the last good ruleset on disk, so that a relay that restarts while NATS is
// away still serves it.
package state

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"spillway.dev/contracts/spillwayv1"
)

// A file is the magic, the SHA-256 of the payload, and the payload: a binary spillway.v1.Ruleset.
var magic = []byte("SPILLWAY-RULESET-1\n")

// Store is one folder, written by one relay only.
type Store struct{ folder string }

// Open makes the folder when it is missing.
func Open(folder string) (*Store, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	return &Store{folder}, nil
}

func (s *Store) path() string { return filepath.Join(s.folder, "ruleset.pb") }

// Load the ruleset; nil when there is none. A damaged file is moved aside and told as an error;
// the relay then goes on without it.
func (s *Store) Load() (*spillwayv1.Ruleset, error) {
	content, err := os.ReadFile(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ruleset, err := decode(content)
	if err != nil {
		aside := s.path() + ".damaged"
		return nil, errors.Join(fmt.Errorf("%s: %w; moved to %s", s.path(), err, aside), os.Rename(s.path(), aside))
	}
	return ruleset, nil
}

func decode(content []byte) (*spillwayv1.Ruleset, error) {
	rest, ok := bytes.CutPrefix(content, magic)
	if !ok || len(rest) < sha256.Size {
		return nil, errors.New("not a ruleset file")
	}
	sum := sha256.Sum256(rest[sha256.Size:])
	if !bytes.Equal(sum[:], rest[:sha256.Size]) {
		return nil, errors.New("checksum does not match")
	}
	ruleset := &spillwayv1.Ruleset{}
	if err := proto.Unmarshal(rest[sha256.Size:], ruleset); err != nil {
		return nil, err
	}
	return ruleset, nil
}

// Save replaces the ruleset: after a crash at any instant the old one or the new one is there, whole.
func (s *Store) Save(ruleset *spillwayv1.Ruleset) error {
	payload, err := proto.Marshal(ruleset)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(payload)
	content := bytes.Join([][]byte{magic, sum[:], payload}, nil)
	file, err := os.CreateTemp(s.folder, "ruleset-*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // does nothing once it is renamed
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), s.path()); err != nil {
		return err
	}
	return syncFolder(s.folder)
}

// syncFolder makes the rename itself last.
func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
