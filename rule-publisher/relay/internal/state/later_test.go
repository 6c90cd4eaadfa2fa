package state

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestAStalledDiskKeepsNobody checks that a stalled disk blocks no caller of Put. When the disk
// continues, only the newest of the values put in the meantime is written. Wait waits for that, but
// not for ever.
func TestAStalledDiskKeepsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written []int
		stalled := make(chan struct{})
		l := &Later[int]{Write: func(value int) { <-stalled; written = append(written, value) }}
		if !l.Wait(time.Second) {
			t.Error("waits for nothing")
		}
		l.Put(1)
		synctest.Wait() // 1 is being written
		for value := 2; value <= 5; value++ {
			l.Put(value)
		}
		if l.Wait(time.Second) {
			t.Error("says that all is written while the disk stalls")
		}
		close(stalled)
		if !l.Wait(time.Second) || !slices.Equal(written, []int{1, 5}) {
			t.Errorf("written %v, want 1 and 5", written)
		}
		l.Put(6)
		if !l.Wait(time.Second) || !slices.Equal(written, []int{1, 5, 6}) {
			t.Errorf("written %v, want 6 too", written)
		}
	})
}
