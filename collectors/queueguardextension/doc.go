// Package queueguardextension moves sending queues that a crash of the machine has torn out of the way, before
// file_storage opens them. file_storage's own `recreate` catches a panic of the goroutine that opens the file;
// bbolt meets most tears in another goroutine, or answers with an error, and the collector would never start again.
package queueguardextension
