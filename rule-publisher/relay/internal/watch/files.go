// Package watch looks at files that may be rotated while the relay runs.
package watch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"time"
)

// Files belong together, as a certificate and its key. Content is compared, not times: configuration
// that is mounted changes by swapping links.
type Files struct {
	Paths []string
	// Use takes the content of each path into use, or says why it cannot.
	Use func(content [][]byte) error

	loaded  [][]byte // what is in use
	refused [][]byte // what was told of as refused; it may become good later
	before  [][]byte // what was there at the last look
}

// Load takes the files into use for the first time; the error names the file and what is wrong with it.
func (f *Files) Load() error {
	content, err := f.read()
	if err != nil {
		return err
	}
	return f.use(content)
}

// Watch the files until the context ends, and tell of new content once: whether it is in use now, or
// why the old stays.
func (f *Files) Watch(ctx context.Context, every time.Duration, tell func(refused error)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if taken, err := f.look(); taken || err != nil {
			tell(err)
		}
	}
}

// look takes up content that is new and has been the same for two looks: several files are not
// written at one instant.
func (f *Files) look() (taken bool, err error) {
	content, unreadable := f.read()
	still := same(content, f.before)
	f.before = content
	if !still || same(content, f.loaded) {
		return false, nil
	}
	if err = unreadable; err == nil {
		err = f.use(content)
	}
	if err != nil && same(content, f.refused) {
		return false, nil
	}
	if err != nil {
		f.refused = content
	}
	return err == nil, err
}

// read gives an unreadable file as empty content, beside the error.
func (f *Files) read() (content [][]byte, err error) {
	for _, path := range f.Paths {
		data, problem := os.ReadFile(path)
		content, err = append(content, data), errors.Join(err, problem)
	}
	return content, err
}

func (f *Files) use(content [][]byte) error {
	if err := f.Use(content); err != nil {
		return err
	}
	f.loaded = content
	return nil
}

func same(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }
