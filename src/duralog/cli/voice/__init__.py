"""What all commands share: options, output, tables, progress, errors."""
