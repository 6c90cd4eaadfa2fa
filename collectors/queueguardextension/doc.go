// Package queueguardextension moves aside sending queues that a crash of the machine has corrupted,
// before file_storage opens them. The `recreate` option of file_storage only catches a panic of the
// goroutine that opens the file. bbolt detects most damage in another goroutine, or returns an
// error, and the collector would then never start again.
package queueguardextension
