package report

import "testing"

// A full queue drops the oldest, counts it, and keeps order.
func TestQueueDropsTheOldest(t *testing.T) {
	dropped := 0
	q := NewQueue[int](3, func() { dropped++ })
	for i := range 5 {
		q.Put(i)
	}
	for want := 2; want < 5; want++ {
		if got, ok := q.Take(); !ok || got != want {
			t.Errorf("took %d, want %d", got, want)
		}
	}
	if _, ok := q.Take(); ok || dropped != 2 || q.Len() != 0 {
		t.Errorf("dropped %d, %d left", dropped, q.Len())
	}
}
