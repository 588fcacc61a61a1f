"""One way to print: escaping of hostile text, colour, tables, numbers for people, JSON for programs. Knows no other room."""
