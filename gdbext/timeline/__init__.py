"""What processes do over time: sampled without stopping them, kept in little memory, written in the formats of other tools."""
