"""What turns the sources of the site into its pages."""
