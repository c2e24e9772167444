module noop

go 1.24
