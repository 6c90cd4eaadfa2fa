// Package watch checks for new content of files that may be rotated while the relay runs.
package watch

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"time"
)

// Files is a group of files that belong together, such as a certificate and its key. Their content
// is compared, not their modification times, because mounted configuration changes by swapping
// symbolic links.
type Files struct {
	Paths []string
	// Use puts the content of the paths, in their order, into use, or returns why it cannot.
	Use func(content [][]byte) error

	loaded  [][]byte // content that is in use
	refused [][]byte // content already reported as refused; it may become usable later
	before  [][]byte // content at the previous check
}

// Load puts the files into use for the first time. The error names the file and what is wrong with
// it.
func (f *Files) Load() error {
	content, err := f.read()
	if err != nil {
		return err
	}
	return f.use(content)
}

// Watch checks the files until the context ends. It calls `report` once for each new content: with
// nil when that content is in use now, or with the reason why the previous content stays.
func (f *Files) Watch(ctx context.Context, every time.Duration, report func(refused error)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if taken, err := f.look(); taken || err != nil {
			report(err)
		}
	}
}

// look puts new content into use once it was the same at two consecutive checks, because several
// files are not written at the same instant.
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

// read returns the content of every file. An unreadable file yields empty content, and its error is
// joined to `err`.
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
